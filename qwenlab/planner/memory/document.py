"""Generates docs/memory.md: `python -m qwenlab.planner.memory.document --write`, `--check` in tests."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from qwenlab.markdown import table
from qwenlab.planner.catalogue import checkpoints, drafter_checkpoints
from qwenlab.planner.memory.config import KvConfig
from qwenlab.planner.memory.kv_dtypes import KV_DTYPES
from qwenlab.planner.memory.layout import layout_of
from qwenlab.planner.memory.published import Published, memory_lines, published
from qwenlab.planner.memory.reserve import DISPLAY_MARGIN_GIB, MARGIN_GIB
from qwenlab.planner.memory.versions import history

MARKDOWN = Path(__file__).resolve().parents[3] / "docs" / "memory.md"

INTRODUCTION = """# Memory

<!-- generated: python -m qwenlab.planner.memory.document --write -->

How the planner knows whether an engine fits a card, and what fits. The KV part is exact: it follows vLLM's own
planning code, release by release, and is held against recorded answers of seven releases
(`tests/planner/test_memory_against_vllm.py`) and against the pools below. The rest of a card (workspace, graphs) is
fitted and carries a margin.

    python -m qwenlab memory --kv-dtype fp8 --spec mtp --draft-tokens 3 --max-model-len 150000 --kv-bytes 6.5GiB

## How a pool is cut

1. One token of one attention layer takes `a` bytes: keys and values of the KV heads of a card (at most four cards
   share four heads; beyond, heads are replicated and only weights and states go on shrinking).
2. One recurrent state of one GDN layer takes `s` bytes: 48 x 128 x 128 elements and the convolution's carry of
   3 + draft tokens columns, divided by tensor parallelism.
3. The block is the smallest multiple of 16 tokens whose attention page covers a state: `B = ceil16(s / a)`; the page
   is `B x a`. `--block-size` raises it. FlashInfer's GDN prefill (compute capability 9.0, 10.x and 12.x) makes it a
   multiple of 64 from 0.33 on, as long as prefixes are cached.
4. Layers share blocks in groups: 16 without a drafter, 17 with MTP, 8 with a block drafter (5 without the patch
   `kv-group-size`).
5. One request holds `ceil(length / B)` blocks per attention group, `draft tokens + 1` states per GDN group (one more
   with prefix caching, and one more again where FlashInfer's GDN prefill exports checkpoints), and the drafter's
   window: `ceil((2047 + batches in flight x batched tokens) / b) + 1` blocks of `b` tokens.
6. Under a pipeline a card holds, per block, as many layers as its fullest group has there: partitions lie on a
   staircase.
7. The pool that vLLM prints is `length x blocks / blocks per request`: two pools compare at equal length only.

A block drafter on FlashInfer (fp8 KV, from 0.30) works in blocks of at most 64 tokens. They grow to the target's block
only if that is a multiple of 64; otherwise each request holds dozens of near-empty blocks. So where it saves memory the
planner raises the block to the next multiple and passes `--block-size`.
"""


def configuration(row: Published) -> str:
    """A configuration in few words."""
    config = row.config
    words = [config.kv_dtype]
    words.append(f"{config.method} {config.draft_tokens}" if config.method else "no drafter")
    words.append(f"{config.max_model_len:,} tokens")
    if config.tp > 1:
        words.append(f"TP={config.tp}")
    if len(config.partition) > 1:
        words.append(f"PP {','.join(map(str, config.partition))}")
    if config.capability != (8, 6):
        words.append(f"compute capability {config.capability[0]}.{config.capability[1]}")
    if config.max_num_batched_tokens != 2048:
        words.append(f"{config.max_num_batched_tokens:,} batched")
    if not config.prefix_cache:
        words.append("no prefix cache")
    if not config.async_scheduling:
        words.append("synchronous")
    if config.ssm_dtype != "float16":
        words.append(f"{config.ssm_dtype} state")
    if config.method == "dflash" and not config.grouping_patched:
        words.append("stock groups")
    if config.block_size:
        words.append(f"block {config.block_size:,}")
    return ", ".join(words)


def size(row: Published) -> str:
    """How the pool's size is known."""
    if row.kv_bytes:
        return f"pinned, {row.kv_bytes:,} B"
    return "pinned, blocks" if row.blocks else "whole blocks"


def document() -> str:
    """The whole file."""
    exact, misses = published("exact"), published("misses")
    lines = [
        INTRODUCTION,
        *_section("What each release changed", table(("from", "change"), history())),
        *_section("KV types", _kv_types()),
        "Blocks in tokens, float16 state, one card of compute capability 8.6.",
        "",
        *_section("Checkpoints", _checkpoints()),
        *_drafters(),
        "",
        *_section(f"Published pools that are reproduced to the token ({len(exact)})", _reproduced(exact)),
        "`whole blocks`: the size was not published; the figure is that of a whole number of blocks.",
        "`inferred`: not stated by the source and taken because the figure fits it, so weaker evidence.",
        "",
        *_section(f"Published pools that are not ({len(misses)})", _missed(misses)),
        *_section("Refusals and longest contexts", _limits()),
        *_section("Weights on a card", _memory("loads")),
        "## Workspace and graphs on a card",
        "",
        f"What a card holds beside weights and KV pool. The planner keeps {MARGIN_GIB:.2f} GiB free on top, "
        f"{MARGIN_GIB + DISPLAY_MARGIN_GIB:.2f} GiB on a card",
        "that drives a display.",
        "",
        *_memory("rests"),
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, body: list[str]) -> list[str]:
    return [f"## {title}", "", *body, ""]


def _kv_types() -> list[str]:
    return table(
        ("type", "bytes per token and layer", "drafter's layer", "block without drafter", "MTP 3", "DFlash2 7"),
        (
            (
                name,
                f"{dtype.token_bytes(4, 256):,}",
                "-" if dtype.drafter_block else f"{dtype.token_bytes(8, 128):,}",
                *(f"{blocks:,}" for blocks in _blocks(name)),
            )
            for name, dtype in KV_DTYPES.items()
        ),
    )


def _checkpoints() -> list[str]:
    return table(
        ("key", "repository", "revision", "format", "GiB", "published", "a GDN layer, MiB", "head", "needs"),
        (
            (
                spec.key,
                spec.repo,
                f"`{spec.revision[:12]}`" if spec.revision else "at deploy time",
                spec.format,
                f"{spec.total_gib:.2f}",
                spec.published_gib,
                f"{spec.gib['gdn_layer'] * 1024:.0f}",
                f"{spec.gib['lm_head']:.2f}",
                ", ".join(spec.patches) or "-",
            )
            for spec in checkpoints().values()
        ),
    )


def _drafters() -> list[str]:
    return table(
        ("drafter", "repository", "revision", "GiB"),
        (
            (spec.key, spec.repo, f"`{(spec.revision or 'at deploy time')[:12]}`", f"{spec.gib:.2f}")
            for spec in drafter_checkpoints().values()
        ),
    )


def _reproduced(rows: Iterable[Published]) -> list[str]:
    return table(
        ("vLLM", "configuration", "size", "published", "ours", "blocks", "inferred", "source"),
        (
            (
                row.config.vllm,
                configuration(row),
                size(row),
                f"{row.pool:,}",
                f"{row.ours().pool_tokens:,}",
                f"{row.ours().num_blocks:,}",
                row.inferred or "",
                row.source,
            )
            for row in rows
        ),
    )


def _missed(rows: Iterable[Published]) -> list[str]:
    return table(
        ("vLLM", "configuration", "published", "nearest of ours", "error", "why", "source"),
        (
            (
                row.config.vllm,
                configuration(row),
                f"{row.pool:,}",
                f"{row.ours().pool_tokens:,}",
                f"{100 * (row.ours().pool_tokens / (row.pool or 1) - 1):+.2f} %",
                row.why,
                row.source,
            )
            for row in rows
        ),
    )


def _limits() -> list[str]:
    refused = ((row, f"needs {row.gib} GiB", f"{row.gib_per_request():.3f} GiB") for row in published("refusals"))
    longest = ((row, f"at most {row.tokens:,} tokens", f"{row.longest():,} tokens") for row in published("longest"))
    return table(
        ("vLLM", "configuration", "published", "ours", "source"),
        ((row.config.vllm, configuration(row), theirs, ours, row.source) for row, theirs, ours in (*refused, *longest)),
    )


def _blocks(kv_dtype: str) -> list[int]:
    configs = (
        KvConfig(kv_dtype=kv_dtype),
        KvConfig(kv_dtype=kv_dtype, method="mtp", draft_tokens=3),
        KvConfig(kv_dtype=kv_dtype, method="dflash", drafter="dflash2", draft_tokens=7),
    )
    return [layout_of(config).block_size for config in configs]


def _memory(section: str) -> list[str]:
    return table(
        ("vLLM", "published GiB", "ours", "difference", "source"),
        (
            (
                line.vllm,
                f"{'at most ' if line.at_most else ''}{line.published:.2f}",
                f"{line.ours:.2f}",
                f"{line.ours - line.published:+.2f}",
                line.source,
            )
            for line in memory_lines(section)
        ),
    )


def main(argv: list[str]) -> int:
    """Write the file, or check that it is current; exit code 1 when it is not."""
    options = argparse.ArgumentParser(prog="python -m qwenlab.planner.memory.document", description=__doc__)
    action = options.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true")
    action.add_argument("--check", action="store_true")
    arguments = options.parse_args(argv)
    if arguments.write:
        MARKDOWN.write_text(document(), encoding="utf-8")
        return 0
    current = MARKDOWN.exists() and MARKDOWN.read_text(encoding="utf-8") == document()
    if not current:
        print(f"{MARKDOWN} is out of date: python -m qwenlab.planner.memory.document --write", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

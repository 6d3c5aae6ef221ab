"""`python -m qwenlab memory`: blocks, tokens and GiB of a KV pool for a given configuration."""

from __future__ import annotations

import argparse
import json
import re
import sys

from rich.table import Table

from qwenlab.output import console
from qwenlab.planner.geometry import drafters, models
from qwenlab.planner.memory.config import KvConfig, changed, gdn_prefill_is_flashinfer
from qwenlab.planner.memory.errors import MemoryModelError
from qwenlab.planner.memory.kv_dtypes import kv_dtype
from qwenlab.planner.memory.layout import GIB, layout_of
from qwenlab.planner.memory.pool import KvPool, longest_context, pool_of
from qwenlab.planner.memory.versions import DEFAULT_VERSION, pool_rules

DEFAULT_TOKENS = {"off": 0, "mtp": 3, "dflash": 7}
SMALLEST_BARE = 1 << 20  # a smaller number without a unit was meant in GiB
DEFAULT_DRAFTER = "dflash2"
_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "K": 10**3, "M": 10**6, "G": 10**9} | {
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}


def byte_count(text: str) -> int:
    """`5583457484`, `5.2GiB` or `9GB` in bytes."""
    found = re.fullmatch(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE]\+?[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2].upper() not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write bytes (5583457484) or 5.2GiB")
    number = found[1].replace(",", "").replace("_", "")
    scale = _UNITS[found[2].upper()]
    try:
        size = int(number) * scale if number.isdigit() else int(float(number) * scale)
    except (OverflowError, ValueError):  # more digits than a size can have
        raise argparse.ArgumentTypeError(f"{text[:20]}... is no size; write bytes (5583457484) or 5.2GiB") from None
    if not found[2] and size < SMALLEST_BARE:
        raise argparse.ArgumentTypeError(f"{text} means {size:,} bytes without a unit; write {text.strip()}GiB")
    return size


def layer_split(text: str) -> tuple[int, ...]:
    """`13,51` as layers per pipeline stage."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no split; write layers per stage, e.g. 13,51") from error


def capability(text: str) -> tuple[int, int]:
    """`8.6`, `86` or `120` as a compute capability."""
    found = re.fullmatch(r"([0-9]+)\.([0-9])|([0-9]+)([0-9])", text.removeprefix("sm_"))
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no compute capability; write 8.6 or 120")
    major, minor = (found[1], found[2]) if found[1] else (found[3], found[4])
    return int(major), int(minor)


def positive(text: str) -> int:
    """A whole number above zero."""
    try:
        number = int(text.replace(",", "").replace("_", ""))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small; at least 1")
    return number


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    options = argparse.ArgumentParser(prog="python -m qwenlab memory", description=__doc__)
    add = options.add_argument
    add("--model", default="qwen3.8-27b", choices=list(models()))
    add("--vllm", default=DEFAULT_VERSION, metavar="VERSION", help="whose block rules hold (default %(default)s)")
    add("--kv-dtype", default="fp8", metavar="TYPE", help="vLLM's --kv-cache-dtype (default %(default)s)")
    add("--spec", default="off", choices=list(DEFAULT_TOKENS), help="speculative decoding")
    add("--drafter", choices=list(drafters()), help=f"with --spec dflash (default {DEFAULT_DRAFTER})")
    add("--draft-tokens", type=int, metavar="K", help="tokens per step (default: mtp 3, dflash 7)")
    add("--max-model-len", type=positive, default=262_144, metavar="M")
    add("--tp", type=positive, default=1, metavar="N", help="tensor parallel size")
    add("--partition", type=layer_split, metavar="A,B", help="layers per pipeline stage (default: one stage)")
    add("--batched-tokens", type=positive, default=2048, metavar="T", help="--max-num-batched-tokens")
    add("--no-prefix-cache", action="store_true")
    add("--ssm-dtype", default="float16", choices=["float16", "bfloat16", "float32"], help="of the recurrent state")
    add("--grouping", default="patched", choices=["stock", "patched"], help="KV group size (matters with dflash)")
    add("--sync-scheduling", action="store_true", help="async scheduling is off")
    add("--block-size", type=positive, metavar="B", help="--block-size as passed to vLLM (default: the planner's)")
    add("--drafter-backend", metavar="NAME", help="attention backend of the drafter (default: by KV type)")
    add("--sm", type=capability, default=(8, 6), metavar="CC", help="compute capability of the cards (default 8.6)")
    add("--gdn-prefill-backend", default="auto", choices=["auto", "triton", "flashinfer"])
    size = options.add_mutually_exclusive_group(required=True)
    size.add_argument("--kv-bytes", type=byte_count, metavar="PER_CARD", help="pool on each card: bytes, or 5.2GiB")
    size.add_argument("--kv-blocks", type=positive, metavar="N", help="pool as a block count")
    add("--json", action="store_true", help="one JSON object")
    return options


def config_from(arguments: argparse.Namespace) -> KvConfig:
    """The configuration that the options describe; MemoryModelError where they contradict each other."""
    tokens = DEFAULT_TOKENS[arguments.spec] if arguments.draft_tokens is None else arguments.draft_tokens
    if arguments.spec == "off" and tokens:
        raise MemoryModelError(f"--draft-tokens {tokens} needs --spec mtp or --spec dflash")
    if arguments.spec != "off" and tokens < 1:
        raise MemoryModelError(f"--spec {arguments.spec} needs at least one draft token")
    model = models()[arguments.model]
    rules = pool_rules(arguments.vllm)
    _refuse_idle_drafter_options(arguments)
    flashinfer = gdn_prefill_is_flashinfer((arguments.sm,), arguments.gdn_prefill_backend)
    return KvConfig(
        model=arguments.model,
        drafter=(arguments.drafter or DEFAULT_DRAFTER) if arguments.spec == "dflash" else None,
        method=None if arguments.spec == "off" else arguments.spec,
        draft_tokens=tokens,
        tp=arguments.tp,
        partition=arguments.partition or (model.layers,),
        kv_dtype=kv_dtype(arguments.kv_dtype).name,
        ssm_dtype=arguments.ssm_dtype,
        drafter_backend=arguments.drafter_backend,
        gdn_flashinfer=rules.checkpoint_state and flashinfer,
        capability=arguments.sm,
        max_model_len=arguments.max_model_len,
        max_num_batched_tokens=arguments.batched_tokens,
        prefix_cache=not arguments.no_prefix_cache,
        async_scheduling=not arguments.sync_scheduling,
        vllm=arguments.vllm,
        grouping_patched=arguments.grouping == "patched",
        block_size=arguments.block_size,
    )


def _refuse_idle_drafter_options(arguments: argparse.Namespace) -> None:
    """MemoryModelError where a drafter's option would change nothing: a typed option means that somebody expects it."""
    for option, value in (("--drafter", arguments.drafter), ("--drafter-backend", arguments.drafter_backend)):
        if value is not None and arguments.spec != "dflash":
            raise MemoryModelError(f"{option} {value} has no effect without --spec dflash")
    if arguments.drafter_backend is None:
        return
    if not pool_rules(arguments.vllm).drafter_takes_target_block:
        raise MemoryModelError(f"--drafter-backend has no effect on the blocks of vLLM {arguments.vllm}")
    if kv_dtype(arguments.kv_dtype).drafter_block is not None:
        raise MemoryModelError(f"--drafter-backend has no effect with {arguments.kv_dtype}: its blocks are fixed")


def _refuse_idle_block_size(config: KvConfig) -> None:
    if config.block_size is None:
        return
    own = layout_of(changed(config, block_size=None)).own_block_size
    if layout_of(config).block_size == own != config.block_size:
        raise MemoryModelError(f"--block-size {config.block_size} has no effect: vLLM takes {own} tokens either way")


def report(pool: KvPool) -> dict[str, int | float | str | None]:
    """The figures of the command's JSON, and whether vLLM would start with them.

    Sizes are those of one card, of the fullest stage where there are several.
    """
    fullest = max(pool.layouts, key=lambda layout: layout.slots)
    return {
        "block_size": pool.block_size,
        "page_bytes": fullest.page_bytes,
        "group_size": fullest.group_size,
        "blocks_per_request": fullest.blocks_per_request,
        "num_blocks": pool.num_blocks,
        "pool_tokens": pool.pool_tokens,
        "gib_per_request": round(fullest.gib_per_request, 6),
        "boots": not pool.refusal,
        "refusal": pool.refusal or None,
    }


def main(argv: list[str]) -> int:
    """Print the pool. Exit code 0, also for a pool that vLLM would refuse (said on stderr); 64 for a wrong call."""
    options = parser()
    try:
        arguments = options.parse_args(argv)
    except SystemExit as stop:
        return 64 if stop.code else 0
    try:
        config = config_from(arguments)
        _refuse_idle_block_size(config)
        pool = pool_of(config, arguments.kv_bytes, blocks=arguments.kv_blocks)
    except MemoryModelError as error:
        print(f"qwenlab memory: {error}", file=sys.stderr)
        return 64
    if arguments.json:
        print(json.dumps(report(pool)))
    else:
        _print_table(config, pool)
    if pool.refusal:
        print(f"vLLM {config.vllm} would refuse to start: {pool.refusal}.", file=sys.stderr)
    return 0


def _print_table(config: KvConfig, pool: KvPool) -> None:
    out = console()
    first = pool.layouts[0]
    speculation = f"{config.method}, {config.draft_tokens} draft tokens" if config.method else "no speculation"
    out.print(
        f"[bold]{config.model}[/bold], vLLM {config.vllm}: {config.kv_dtype} KV, {speculation}, "
        f"{config.max_model_len:,} tokens per request, tensor parallel {config.tp}"
    )
    table = Table("", "", "what it is", box=None, show_header=False, pad_edge=False)
    flag = (
        "" if first.block_size == first.own_block_size else f" (pass --block-size; vLLM's own: {first.own_block_size})"
    )
    rows = [
        ("block", f"{first.block_size:,} tokens", f"of one attention layer{flag}"),
        ("page", f"{first.page_bytes:,} B", "one block of one layer on one card"),
        ("group", f"{first.group_size} layers", f"share a block; {len(first.groups)} groups"),
        ("one request", f"{first.blocks_per_request:,} blocks", "at full length"),
        ("pool", f"{pool.num_blocks:,} blocks", f"{pool.pool_tokens:,} tokens, {pool.concurrency:.2f} full requests"),
        ("longest", f"{longest_context(config, pool.num_blocks):,} tokens", "that one request may have in this pool"),
    ]
    for row in rows:
        table.add_row(*row)
    for stage, (layout, size) in enumerate(zip(pool.layouts, pool.bytes_per_stage, strict=True)):
        name = f"stage {stage}" if len(pool.layouts) > 1 else "card"
        table.add_row(
            name,
            f"{size / GIB:.2f} GiB",
            f"pool on each card ({layout.slots} layers per block); one request {layout.gib_per_request:.2f} GiB",
        )
    out.print(table)

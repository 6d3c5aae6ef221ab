"""docs/choice.md: what is chosen for the machines of the published recipes, beside their own answer.

python -m tests.planner.choice_page --write
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from qwenlab.markdown import table
from qwenlab.planner import plan
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.settings import load
from tests.planner.machines import inventories

PAGE = Path(__file__).resolve().parents[2] / "docs" / "choice.md"
WORKLOADS = ("chat", "batch", "long", "edit")


@dataclass(frozen=True)
class Recipe:
    """What a published recipe or report does with a machine, and what to say about the difference."""

    machine: str
    theirs: str
    measured: str
    difference: str


RECIPES = (
    Recipe(
        "1x3090",
        "HyperQwen: DFlash2 7 with a 16-bit cache up to 65,536 tokens (B); no drafter and fp8 for batches "
        "(A); MTP 3 with fp8 "
        "to 150,000 (D); DFlash2 15 with lookup drafting for edits (C)",
        "122-131 tok/s (B), 1,035 at 64 requests with int8 activations and 830 without (A), 68 at a depth of "
        "112,000 (D)",
        "The same four. The window is as long as the memory allows instead of a round number. Edits draft 7, "
        "not 15: what "
        "lies beyond the trained block comes from lookup drafting, which no release of vLLM has.",
    ),
    Recipe(
        "2x3090-nvlink",
        "HyperQwen: TP=2 with DFlash2 for chat (#159) and TP=2 for batches (#164)",
        "182.8 tok/s at one stream; 1,439 at 64 requests",
        "The same layouts. A longer window than club-3090's 204,800 because the group-size patch stores 16 "
        "attention layers in "
        "16 slots instead of 20.",
    ),
    Recipe(
        "2x3090-pcie",
        "HyperQwen #40: TP=2 with DFlash2; club-3090: dual-ultrafast, the same with 204,800 tokens",
        "161.6 tok/s (127.4 on one card); club-3090 132 on prose, 227 on code",
        "The same for chat. For batches two copies: each card serves its half without an all-reduce of every "
        "layer, and the "
        "model fits one card.",
    ),
    Recipe(
        "3x3090",
        "HyperQwen docs/multi-gpu.md: TP=2 and a second engine on the third card; club-3090 leaves the third idle",
        "not measured",
        "The same for chat. For batches three copies behind one port.",
    ),
    Recipe(
        "4x5060ti-peer",
        "HyperQwen #105, #254: TP=4, DFlash2 7 with an int8 cache on Triton, NCCL_P2P_LEVEL",
        "177.9 tok/s greedy, 154.3 later",
        "TP=4 and DFlash2 7 as there, with a 16-bit cache on FlashAttention: it fits 262,144 tokens, and "
        "reads of a deep cache "
        "are faster than Triton's. NCCL_P2P_LEVEL is PHB, what the cards sit on.",
    ),
    Recipe(
        "2x4090",
        "HyperQwen #190 (under WSL2): DP=2 for batches; TP=2 loses even at one stream",
        "39.6 s for a burst that TP=2 takes 110.9 s and one card 76.2 s for; 151.1 tok/s alone, 118.7 with TP=2",
        "Two copies for batches. On native Linux TP=2 and two copies are within a few per cent for chat; see "
        "the rejected ones.",
    ),
    Recipe(
        "4x3060ti",
        "HyperQwen #210: TP=4 with a 4-bit KVarN cache, 245,760 tokens",
        "118.1 tok/s",
        "TP=4 with stock data types: KVarN is a kernel that vLLM does not have. The window is shorter for "
        "chat and as long for "
        "`long`.",
    ),
    Recipe(
        "2x3060",
        "HyperQwen #68, #205, #255: TP=2, MTP 3, fp8 cache, 131,072 tokens, pool pinned",
        "58-64 tok/s",
        "TP=2 with the pool pinned. Speculation on FlashInfer's fp8 kernels is bound by the host at TP=2 "
        "(HyperQwen #105, "
        "#217), so another cache is faster.",
    ),
    Recipe(
        "3090+a4000",
        "HyperQwen #160: TP=2 with MTP 4 and fp8, better there than PP=2 48,16 without a drafter",
        "54.6 tok/s for TP=2, 39.1 for PP=2",
        "The 3090 alone: joined, every layer waits for the A4000's 448 GB/s or for the link. The A4000 "
        "serves short requests "
        "on a port of its own.",
    ),
    Recipe(
        "5090+4070tisuper",
        "ExTV/dual-gpus-vllm: PP=2, small card first, NVFP4 13,51, DFlash2 7, fp8, 262,144 tokens",
        "24.8 ms a step: 215-259 tok/s on code, 110-119 on prose",
        "The 5090 alone with INT4: a step reads 13 GB at 1,792 GB/s instead of 20 GB over two cards. With "
        "larger weights "
        "(`qwen_checkpoint: nvfp4-unsloth`, `fp8`, `w8a16`) at 262,144 tokens it is their pipeline, small "
        "card first; with "
        "0.30.0's rules, a float32 state and 1,024 batched tokens their block of 1,664 and 375 blocks come "
        "out to the block.",
    ),
    Recipe(
        "5080+3080",
        "HyperQwen #216: a trap, no recipe: CUDA numbers the faster card first",
        "not measured",
        "Cards are named by UUID in rank order, so no numbering matters.",
    ),
    Recipe(
        "8xh100",
        "none published",
        "none",
        "One engine over the switch for chat: eight cards read the weights in an eighth of the time. Copies "
        "for batches.",
    ),
    Recipe(
        "1xh200",
        "measured with vLLM 0.30.0: fp8 weights, fp8 cache and bfloat16 state are best at 64 streams",
        "99.5 tok/s without a drafter, 206 with DFlash2 on bf16 weights at 4.0 tokens a step; 4,487 at 64 streams",
        "8-bit weights; DFlash2 for few streams, no drafter at 64, where it gained nothing.",
    ),
    Recipe(
        "1x4090-wsl2",
        "HyperQwen: as one 3090 with less memory; util 0.91 for batches",
        "134.7 tok/s on prose; 1,604 at 64 requests with int8 activations",
        "As one 3090, with Windows' share and the desktop counted as in use.",
    ),
    Recipe("laptop-8gb", "none", "none", "Refused, with what would fit."),
)


def page() -> str:
    """The whole page as Markdown."""
    lines = [
        "# What is chosen, and why",
        "",
        "Generated by `python -m tests.planner.choice_page --write`.",
        "",
        *wrap(
            "The planner enumerates the layouts that geometry allows, sizes each with the memory model, and "
            "scores what fits "
            "with the throughput model: tokens per second of a request of the workload (its prompt, its answer, "
            "the geometric "
            "mean of alone and among the others), times how near the weights are to BF16, times how much of the "
            "asked window "
            "fits. Throughput adds all engines up; where latency counts the best engine counts and others add a "
            "tenth. How far "
            "the numbers are off: docs/accuracy.md and docs/memory.md.",
            120,
        ),
        "",
    ]
    machines = inventories()
    for recipe in RECIPES:
        lines += [f"## {recipe.machine}", "", f"- Theirs: {recipe.theirs}.", f"- Measured: {recipe.measured}."]
        lines += [f"- Here: {recipe.difference}", ""]
        rows: list[tuple[str, str, str]] = []
        lost: list[str] = []
        for workload in WORKLOADS:
            host = plan(machines[recipe.machine], load({"qwen_workload": workload}))
            rows.append((workload, _engines(host), _expected(host)))
            if workload == "chat" and host.engines:
                lost = [f"- {row.layout}: {row.why}" for row in host.engines[0].rejected]
                lost += [f"- idle: {card.why}" for card in host.idle]
        lines += [*table(("workload", "engines", "expected"), rows), ""]
        if lost:
            lines += ["What lost for chat:", "", *lost, ""]
    return "\n".join(lines)


def _engines(host: HostPlan) -> str:
    if host.status == "refused":
        return "refused: " + "; ".join(refusal.text for refusal in host.refusals)
    return "<br>".join(_engine(engine) for engine in host.engines)


def _engine(engine: EnginePlan) -> str:
    layout = "".join(
        f"{name}={size} " for name, size in (("TP", engine.tp), ("PP", engine.pp), ("DP", engine.dp)) if size > 1
    )
    split = f"{','.join(map(str, engine.partition))} layers" if engine.partition else ""
    draft = f"{engine.speculation.method} {engine.speculation.tokens}" if engine.speculation else "no drafter"
    weights = engine.checkpoint.repo.split("/")[1]
    prepared = ", prepared" if engine.checkpoint.format.endswith("prepared") else ""
    prepared += ", to 8 bits while loading" if "quantization" in engine.args else ""
    return (
        f"{(layout + split).strip() or 'one card'}: {weights}{prepared}, {draft}, "
        f"{engine.kv_cache_dtype} on {engine.attention_backend}, {engine.max_model_len:,} tokens, "
        f"{engine.max_num_seqs} seats"
    )


def _expected(host: HostPlan) -> str:
    texts = []
    for engine in host.engines:
        expected = engine.predicted
        if expected is not None:
            texts.append(
                f"{expected.decode_tok_s:.0f} tok/s, {expected.aggregate_tok_s or 0:.0f} for {expected.concurrency}"
            )
    return "<br>".join(texts)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.stdout.write(page())

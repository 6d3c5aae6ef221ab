"""Arms for two cards: layouts of the 27B shape at a pinned pool, and greedy equality of a small model over layouts.

Made by `python -m bench.gpu.arms --group equality,pipeline,refused,...`; predictions are computed before anything runs.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.gpu.engine_args import pinned_args
from qwenlab.planner.memory import GIB, pool
from qwenlab.planner.memory.weights import weights_per_rank
from qwenlab.planner.plan import Speculation
from qwenlab.planner.shape import Card, EngineShape

SPLITS = ((32, 32), (24, 40), (20, 44))
PIN = 20 * GIB
LENGTH = 65_536
SMALL_VOCABULARY = 1024
PROMPTS = [[random.Random(seed).randrange(100, 600) for _ in range(48)] for seed in range(8)]
GREEDY_TOKENS = 256
TEACHER = "small-tp1-plain"
REFUSAL = "does not support dflash with pipeline parallelism"
FIFTY_PREFILLS = [
    {"label": "prefills", "concurrency": 5, "prompt_tokens": 12_000, "output_tokens": 4, "seed": 100 + turn}
    for turn in range(10)
]
ONE_STREAM = {"label": "c1", "concurrency": 1, "prompt_tokens": 128, "output_tokens": 128, "seed": 4}
NO_MULTICAST_FUSION = {"pass_config": {"fuse_allreduce_rms": False}}


def shape_over(card: Card, tp: int, split: tuple[int, ...] | None, *, drafter: bool, patched: bool) -> EngineShape:
    """The 27B shape with FP8 weights over two cards at the pinned pool."""
    return EngineShape(
        checkpoint="fp8",
        cards=tuple(replace(card, uuid=f"GPU-{index}", index=index) for index in range(2)),
        vllm="0.33.0",
        drafter="dflash2-bf16" if drafter else None,
        speculation=Speculation(method="dflash", tokens=7) if drafter else None,
        tp=tp,
        pp=len(split) if split else 1,
        partition=split,
        kv_dtype="bfloat16",
        ssm_dtype="bfloat16",
        attention_backend="FLASH_ATTN",
        max_model_len=LENGTH,
        max_num_seqs=8,
        max_num_batched_tokens=4096,
        kv_bytes=PIN,
        grouping_patched=patched,
        in_flight_capped=False,  # the switch of the patch is off
        embedding_shared=patched,
    )


def _arm(
    name: str, group: str, card: Card, drafts: dict[str, Any], tp: int = 1, split: tuple[int, ...] | None = None
) -> dict[str, Any]:
    patched = bool(split)
    shape = shape_over(card, tp, split, drafter=bool(drafts), patched=patched)
    expected = pool(shape, PIN)
    args = pinned_args(LENGTH, "bfloat16", seats=8, pin=PIN) | {
        "async-scheduling": True,
        "compilation-config": NO_MULTICAST_FUSION,
    }
    if drafts:
        args["speculative-config"] = drafts
    env = {"VLLM_USE_DEEP_GEMM": "0"}
    if split:
        args["pipeline-parallel-size"] = len(split)
        env["VLLM_PP_LAYER_PARTITION"] = ",".join(map(str, split))
    else:
        args["tensor-parallel-size"] = tp
    return {
        "name": name,
        "group": group,
        "what": "pool",
        "release": "patched" if patched else "stock",
        "cards": 2,
        "need_gib": 42,
        "args": args,
        "env": env,
        "limit_s": 200,
        "predicted": {
            "kv_tokens": expected.pool_tokens,
            "blocks": expected.num_blocks,
            "weights_gib": [round(gib, 2) for gib in weights_per_rank(shape)],
        },
    }


def pipelines(card: Card, model: Path, drafts: dict[str, Any]) -> list[dict[str, Any]]:
    """Two stages at three splits, with the drafter: pools; the even one also serves 50 long prompts in a row."""
    arms = []
    for split in SPLITS:
        words = "-".join(map(str, split))
        arms.append(_arm(f"pp2-dflash-{words}", "pipeline", card, drafts, split=split) | {"model": str(model)})
        plain = _arm(f"pp2-plain-{words}", "pipeline", card, {}, split=split)
        arms.append(plain | {"model": str(model)})
    arms[0] |= {"what": "serve", "limit_s": 300, "bursts": [ONE_STREAM, *FIFTY_PREFILLS, ONE_STREAM]}
    return arms


def refused(card: Card, model: Path, drafts: dict[str, Any]) -> list[dict[str, Any]]:
    """The same on stock vLLM: it must say why it does not start."""
    arm = _arm("pp2-dflash-stock", "refused", card, drafts, split=SPLITS[0])
    return [arm | {"model": str(model), "release": "stock", "what": "refused", "words": REFUSAL, "predicted": None}]


def tensor(card: Card, model: Path, drafts: dict[str, Any]) -> list[dict[str, Any]]:
    """Two shards: pools without and with the drafter."""
    return [
        _arm("tp2-plain", "tensor", card, {}, tp=2) | {"model": str(model)},
        _arm("tp2-dflash", "tensor", card, drafts, tp=2) | {"model": str(model), "release": "patched"},
    ]


EQUALITY = {  # name: (arguments, environment, cards)
    "tp1": ({}, {}, 1),
    "tp2": ({"tensor-parallel-size": 2}, {}, 2),
    "pp2": ({"pipeline-parallel-size": 2}, {}, 2),
    "pp2-uneven": ({"pipeline-parallel-size": 2}, {"VLLM_PP_LAYER_PARTITION": "3,5"}, 2),
}


def equality(folder: Path) -> list[dict[str, Any]]:
    """Greedy continuations of a small model over every layout, without and with the drafter."""
    arms = []
    for name, (layout, env, cards) in EQUALITY.items():
        for method in ("plain", "dflash"):
            args: dict[str, Any] = {
                "served-model-name": ["q"],
                "max-model-len": 2048,
                "max-num-seqs": 4,
                "kv-cache-memory-bytes": GIB,
                "gpu-memory-utilization": 0.05,
                "language-model-only": True,
                "enforce-eager": True,
                "async-scheduling": True,
                "compilation-config": NO_MULTICAST_FUSION,
                **layout,
            }
            if method == "dflash":
                drafter = {"method": "dflash", "model": str(folder / "drafter"), "num_speculative_tokens": 7}
                args["speculative-config"] = drafter
            arms.append(
                {
                    "name": f"small-{name}-{method}",
                    "group": "equality",
                    "what": "serve",
                    "release": "patched",
                    "cards": cards,
                    "need_gib": 8,
                    "model": str(folder / "target"),
                    "args": args,
                    "env": env,
                    "limit_s": 240,
                    "vocabulary": SMALL_VOCABULARY,
                    "greedy": PROMPTS,
                    "greedy_tokens": GREEDY_TOKENS,
                    "teacher": TEACHER,
                }
            )
    return arms

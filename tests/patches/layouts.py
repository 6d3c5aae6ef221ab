"""The served matrix: how an engine is spread, how it speculates, and which vLLM serves it; docs/served.md lists it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSIONS = ("0.33.0", "0.32.0")
# Two tokens may change places by rounding if they are this near to each other, in nats:
SAME_SUMS = 0.1  # over a pipeline every sum is as on one card
# Tensor parallel splits sums, and without drafts the CPU runs another recurrent kernel than with them. bfloat16 alone
# moves a logit by up to a third (`rounding`); two logits in two engines can so come four thirds nearer to each other.
OTHER_SUMS = 1.35
DRAFTS = {"none": 0, "mtp": 2, "dflash": 7}
ONLINE = (
    *("--quantization", "fp8_per_channel"),
    *("--quantization-config", json.dumps({"ignore": ["re:.*in_proj_[ab]$", "re:.*visual.*"]})),
)
PIPELINE = ("--pipeline-parallel-size", "2")


@dataclass(frozen=True)
class Layout:
    """How an engine is spread: common arguments, those of each node, environment, and what rounding may do.

    With `other_weights` its answers are held against its own without drafts instead of those of 16-bit weights.
    """

    arguments: tuple[str, ...] = ()
    nodes: tuple[tuple[str, ...], ...] = ((),)
    environment: dict[str, str] = field(default_factory=dict)
    tie: float = SAME_SUMS
    other_weights: bool = False


LAYOUTS = {
    "one": Layout(tie=OTHER_SUMS),
    "8 bits while loading": Layout(ONLINE, tie=OTHER_SUMS, other_weights=True),
    "tensor": Layout(("--tensor-parallel-size", "2"), tie=OTHER_SUMS),
    "pipeline": Layout(PIPELINE),
    "uneven pipeline": Layout(PIPELINE, environment={"VLLM_PP_LAYER_PARTITION": "5,3"}),
    "two nodes": Layout(
        (*PIPELINE, "--nnodes", "2", "--master-addr", "127.0.0.1"),
        (("--node-rank", "0"), ("--node-rank", "1", "--headless")),
    ),
}
# (version, layout, method) that the runner does not allow, and why
NOT_ALLOWED: dict[tuple[str, str, str], str] = {}
# (version, way of speculating) that gives up the last block of a prefix hit: the long prompt's only state lies there
LAST_BLOCK_DROPPED = {("0.32.0", "mtp")}
# (version, layout, way of speculating): what is planned beside the method
BESIDE_METHOD = {("0.33.0", "8 bits while loading", "mtp"): {"draft_lm_head_quantization": "fp8"}}
ALL = [(version, layout, method) for version in VERSIONS for layout in LAYOUTS for method in DRAFTS]


def speculation(version: str, layout: str, method: str, checkpoints: Path) -> list[str]:
    """Arguments for a way of speculating; at 0.32.0 DFlash finds a cached prefix only with the drop switched off."""
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": DRAFTS[method]}
    if method == "dflash":
        config["model"] = str(checkpoints / "drafter")
        if version == "0.32.0":
            config["disable_eagle_block_drop"] = True
    config |= BESIDE_METHOD.get((version, layout, method), {})
    return [] if method == "none" else ["--speculative-config", json.dumps(config)]

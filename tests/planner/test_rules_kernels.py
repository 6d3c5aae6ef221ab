"""Which kernels run: those that a plan switches off, blocks that a drafter's kernels take, patches by silicon."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwenlab.planner.memory import kv_layout
from qwenlab.planner.plan import Speculation
from qwenlab.planner.shape import EngineShape
from qwenlab.settings import Settings
from tests.planner.engines import rendered, shape, without_drafter

MARLIN_OFF = "MarlinFP8ScaledMMLinearKernel,HummingFP8ScaledMMLinearKernel"


@pytest.mark.parametrize(
    ("case", "engine", "tuned", "disabled"),
    [
        ("untuned, vLLM's order is the faster one", without_drafter("RTX 4090", "RTX 4090", tp=2), False, None),
        ("tuned: the weight-only kernels go", without_drafter("RTX 4090", "RTX 4090", tp=2), True, MARLIN_OFF),
        ("Ampere has no FP8 arithmetic to gain", without_drafter("RTX 3090", "RTX 3090", tp=2), True, None),
    ],
)
def test_block_fp8_runs_on_triton_where_it_is_tuned(
    case: str, engine: EngineShape, tuned: bool, disabled: str | None
) -> None:
    env = rendered(replace(engine, checkpoint="fp8"), Settings(tuned_block_fp8=tuned)).env
    assert env.get("VLLM_DISABLED_KERNELS") == disabled
    plain = rendered(replace(engine, checkpoint="int4-autoround"), Settings(tuned_block_fp8=tuned)).env
    assert "VLLM_DISABLED_KERNELS" not in plain


def test_the_kernels_are_switched_off_on_the_ada_card_only() -> None:
    pair = shape("RTX 4070 Ti SUPER", "RTX 5090", pp=2, partition=(21, 43), checkpoint="fp8")
    small, big = rendered(pair, Settings(tuned_block_fp8=True)).processes
    assert small.env["VLLM_DISABLED_KERNELS"] == MARLIN_OFF
    assert "VLLM_DISABLED_KERNELS" not in big.env


@pytest.mark.parametrize("drafts", [1, 3, 5, 7])
@pytest.mark.parametrize("state", ["bfloat16", "float32"])
def test_a_drafter_on_flashinfer_gets_blocks_that_its_kernels_take(drafts: int, state: str) -> None:
    """Else each window layer holds dozens of nearly empty blocks of 64 tokens (dual-gpus-vllm: 385, 5.2 GiB)."""
    engine = shape(
        "RTX 3090",
        kv_dtype="fp8",
        attention_backend="FLASHINFER",
        ssm_dtype=state,
        speculation=Speculation(method="dflash", tokens=drafts),
    )
    layout = kv_layout(engine)
    assert layout.block_size % 64 == 0
    assert rendered(engine).args.get("block-size") == (
        layout.block_size if layout.block_size != layout.own_block_size else None
    )


def test_a_drafter_on_triton_takes_the_targets_block() -> None:
    engine = shape("RTX 4090", kv_dtype="fp8", attention_backend="FLASHINFER", drafter_attention_backend="TRITON_ATTN")
    args = rendered(engine).args
    assert args["speculative-config"]["attention_backend"] == "TRITON_ATTN"
    assert "block-size" not in args


@pytest.mark.parametrize(
    ("engine", "named"),
    [
        (without_drafter("H100", checkpoint="fp8"), True),
        (without_drafter("H100", checkpoint="bf16"), False),
        (without_drafter("RTX 5090", "RTX 5090", tp=2, checkpoint="fp8"), False),
    ],
)
def test_block_fp8_on_hopper_carries_the_patch_that_picks_its_tile(engine: EngineShape, named: bool) -> None:
    assert ("cutlass-rows-sm90" in rendered(engine).patches) is named

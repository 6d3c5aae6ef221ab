"""Which shapes may be planned, and which cards reach each other's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwenlab.host_inventory import Ancestor, GpuPair
from qwenlab.planner.catalogue import checkpoints
from qwenlab.planner.choose import choose
from qwenlab.planner.host import host_of
from qwenlab.planner.plan import Speculation, Workload
from qwenlab.planner.planning import search_of
from qwenlab.planner.rules import violations
from qwenlab.planner.rules.links import peer_access
from qwenlab.planner.shape import EngineShape
from qwenlab.settings import Settings
from tests.planner.engines import NO_PEER, NVLINK, peers, shape, with_mtp, without_drafter
from tests.planner.machines import inventories

BROKEN: list[tuple[str, EngineShape]] = [
    # limit, a shape that breaks it and nothing but what follows from it
    ("tensor-parallel-divides-heads", shape("RTX 3090", "RTX 3090", "RTX 3090", tp=3)),
    ("ranks-match-cards", shape("RTX 3090", "RTX 3090")),
    ("four-layers-a-stage", shape("RTX 3090", "RTX 3090", pp=2, partition=(3, 61))),
    ("no-mtp-over-a-pipeline", with_mtp("RTX 3090", "RTX 3090", pp=2, partition=(32, 32), vllm="0.30.0")),
    (
        "async-with-pipeline-and-drafter",
        shape("RTX 3090", "RTX 3090", pp=2, partition=(32, 32), async_scheduling=False),
    ),
    ("mixed-silicon-wants-weight-only", shape("RTX 3090", "RTX 5090", tp=2, checkpoint="nvfp4")),
    ("lowest-capability-first", shape("RTX 5090", "RTX 3090", tp=2)),
    ("block-drafter-over-a-pipeline", shape("RTX 3090", "RTX 3090", pp=2, partition=(32, 32), vllm="0.31.0")),
    ("oldest-card", shape("RTX 2080 Ti", checkpoint="bf16")),
    ("backend-serves-kv-dtype", shape("RTX 3090", kv_dtype="fp8", attention_backend="TRITON_ATTN")),
    ("backend-serves-kv-dtype", shape("RTX 3090", kv_dtype="int8_per_token_head", attention_backend="FLASHINFER")),
    ("backend-serves-kv-dtype", shape("RTX 4090", kv_dtype="fp8", attention_backend="FLASH_ATTN")),
    (
        "drafter-backend-serves-kv-dtype",
        shape("RTX 3090", kv_dtype="fp8", attention_backend="FLASHINFER", drafter_attention_backend="TRITON_ATTN"),
    ),
    ("bfloat16-from-ampere", shape("RTX 2080 Ti")),
    ("drafter-for-these-weights", shape("RTX 3090", drafter="no-such-drafter")),
    ("trained-draft-length", shape("RTX 3090", "RTX 3090", tp=2, speculation=Speculation(method="dflash", tokens=15))),
]


@pytest.mark.parametrize(
    ("limit", "engine"), BROKEN, ids=[f"{limit} {place}" for place, (limit, _) in enumerate(BROKEN)]
)
def test_a_shape_that_vllm_or_the_silicon_cannot_run_breaks_its_limit(limit: str, engine: EngineShape) -> None:
    assert limit in {rule.id for rule in violations(engine)}


def test_mtp_is_refused_where_the_path_names_a_block_drafter(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM takes `dflash` in the target's path for the method (HyperQwen docs/gotchas.md 14)."""
    spec = replace(checkpoints()["int4-autoround"], repo="someone/Qwen3.8-27B-INT4-DFlash2")
    monkeypatch.setattr("qwenlab.planner.rules.limits.checkpoints", lambda: {"int4-autoround": spec})
    assert "path-names-no-other-method" in {limit.id for limit in violations(with_mtp("RTX 3090"))}
    assert "path-names-no-other-method" not in {limit.id for limit in violations(shape("RTX 3090"))}


ALLOWED: list[tuple[str, EngineShape]] = [
    ("one card", shape("RTX 3090")),
    ("NVLink pair", shape("RTX 3090", "RTX 3090", tp=2, link=NVLINK)),
    ("fp8 KV on FlashInfer below 8.9", without_drafter("RTX 3090", kv_dtype="fp8", attention_backend="FLASHINFER")),
    ("fp8 KV on FlashAttention 3", shape("H100", kv_dtype="fp8")),
    (
        "unequal pair as a pipeline",
        shape("RTX 4070 Ti SUPER", "RTX 5090", pp=2, partition=(13, 51), checkpoint="nvfp4"),
    ),
    ("mixed silicon with int4 weights, oldest first", shape("RTX 3090", "RTX 5090", tp=2)),
    ("MTP over a pipeline from 0.32 on", with_mtp("RTX 3090", "RTX 3090", pp=2, partition=(32, 32), vllm="0.32.0")),
    (
        "the drafter's backend is a matter of the last stage",
        shape(
            "RTX 3090",
            "RTX 5090",
            pp=2,
            partition=(30, 34),
            kv_dtype="fp8",
            attention_backend="FLASHINFER",
            drafter_attention_backend="TRITON_ATTN",
        ),
    ),
    ("15 drafts on one card", shape("RTX 3090", speculation=Speculation(method="dflash", tokens=15))),
]


@pytest.mark.parametrize(("case", "engine"), ALLOWED, ids=[case for case, _ in ALLOWED])
def test_a_shape_that_runs_breaks_no_limit(case: str, engine: EngineShape) -> None:
    assert [rule.id for rule in violations(engine)] == []


def test_the_choice_keeps_every_limit() -> None:
    for machine, inventory in [*list(inventories().items())[::8], ("4070+3060", inventories()["4070+3060"])]:
        for workload in Workload:
            settings = Settings(workload=workload.value)
            for engine in choose(search_of(host_of(inventory, settings))).engines:
                chosen = replace(engine.candidate.shape, cards=engine.cards, dp=engine.replicas)
                assert [limit.id for limit in violations(chosen)] == [], (machine, workload)


PEERS: list[tuple[str, GpuPair | None, bool]] = [
    ("nobody said", None, False),
    ("a bridge", NVLINK, True),
    ("a bridge that the driver does not use", NVLINK.model_copy(update={"peer_read": False}), False),
    (
        "a bridge that the test finds working all the same",
        NVLINK.model_copy(update={"peer_read": False, "measured_peer_ok": True}),
        True,
    ),
    ("driver grants", peers(Ancestor.PHB), True),
    ("driver refuses", NO_PEER, False),
    ("granted, test failed", peers(Ancestor.PHB, ok=False), False),
    ("a failed test outranks a bridge", NVLINK.model_copy(update={"measured_peer_ok": False}), False),
    ("reads but no writes", GpuPair(a=0, b=1, peer_read=True, peer_write=False), False),
]


@pytest.mark.parametrize(("case", "pair", "expected"), PEERS, ids=[case for case, _, _ in PEERS])
def test_peer_access_takes_both_directions_and_no_failed_test(case: str, pair: GpuPair | None, expected: bool) -> None:
    assert peer_access(pair) is expected

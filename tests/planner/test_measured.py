"""A host on which plays/calibrate.py has measured: when the figures hold, and what they change in the plan."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.host_inventory import HostInventory
from qwenlab.measurement import Measurement
from qwenlab.planner import plan
from qwenlab.planner.measured import OF_THE_POOL, measured_with
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.settings import Settings, load
from tests.planner.machines.table import inventories

MACHINES = ("1x3090", "2x3090-nvlink", "3090+3060", "4x3090-pcie", "1x4090-desktop", "1xa100-80gb")
CPU = {"engine": "cpu", "cpu_checkpoint": "lab/tiny", "cpu_revision": "0" * 40}
AT = "2026-01-02T03:04:05Z"


def settings(**more: Any) -> Settings:
    """Settings of a host with cards."""
    return load({f"qwen_{name}": value for name, value in more.items()})


def beside(engine: EnginePlan) -> tuple[float, ...]:
    """What the memory model thinks that the engine takes beside its pool, by rank."""
    return tuple(rank.weights + rank.workspace + rank.graphs for rank in engine.memory)


def measured(host: HostInventory, made: HostPlan, extra_gib: float, **changed: Any) -> HostInventory:
    """The host after every engine of a plan was measured to take so much more than the model thought."""
    found = tuple(
        Measurement(
            engine=engine.name,
            at=AT,
            inputs=measured_with(engine, host, made.vllm).model_copy(update=changed),
            beside_gib=tuple(round(gib + extra_gib, 3) for gib in beside(engine)),
            kv_tokens=70_000,
            transports=("P2P/CUMEM",),
        )
        for engine in made.engines
    )
    # as it comes back from the host
    text = host.model_copy(update={"measurements": found}).model_dump_json()
    return HostInventory.model_validate_json(text)


def pool(engine: EnginePlan) -> int:
    """Blocks of the engine's pool."""
    assert engine.kv is not None
    return engine.kv.blocks


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(("extra_gib", "sign"), [(-0.5, 1), (0.2, -1)])
def test_the_pool_follows_what_was_measured_and_nothing_is_overcommitted(
    name: str, extra_gib: float, sign: int
) -> None:
    host, chosen = inventories()[name], settings()
    before = plan(host, chosen)
    after = plan(measured(host, before, extra_gib), chosen)
    for old, new in zip(before.engines, after.engines, strict=True):
        assert (pool(new) - pool(old)) * sign > 0
        assert new.args["kv-cache-memory-bytes"] != old.args["kv-cache-memory-bytes"]
        assert new.measured is not None
        assert (new.measured.at, new.measured.transports) == (AT, ("P2P/CUMEM",))
        assert any(reason.rule == "measured-memory" for reason in new.reasons)
        for rank in new.memory:
            parts = rank.weights + rank.kv + rank.workspace + rank.graphs + rank.in_use + rank.margin
            assert parts <= rank.total + 0.005


def test_a_pool_as_the_model_thought_leaves_the_plan_as_it_was() -> None:
    host, chosen = inventories()["2x3090-nvlink"], settings(context=32_768)
    (before,), (after,) = (plan(one, chosen).engines for one in (host, measured(host, plan(host, chosen), 0.0)))
    assert abs(pool(after) - pool(before)) <= 1
    same = {name: value for name, value in before.args.items() if name not in OF_THE_POOL}
    assert {name: value for name, value in after.args.items() if name not in OF_THE_POOL} == same


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"driver": "1.2.3"}, "driver 1.2.3 -> "),
        ({"vllm": "0.30.0"}, "vllm 0.30.0 -> 0.33.0"),
        ({"cards": ("GPU-other",)}, "cards GPU-other -> GPU-"),
        ({"checkpoint": "a/b/c"}, "checkpoint a/b/c -> "),
        ({"args": {}}, "max-num-seqs none -> "),
    ],
)
def test_with_another_input_the_figures_end_and_the_plan_says_so(changed: dict[str, Any], words: str) -> None:
    host, chosen = inventories()["2x3090-nvlink"], settings()
    before = plan(host, chosen)
    after = plan(measured(host, before, -0.5, **changed), chosen)
    (old,), (new,) = before.engines, after.engines
    assert (new.args, new.measured) == (old.args, None)
    (warning,) = [text for text in after.warnings if "no longer holds" in text]
    assert words in warning
    assert warning.endswith("plays/calibrate.py measures again")


def test_a_desktop_that_takes_more_needs_no_new_measurement() -> None:
    host, chosen = inventories()["1x4090"], settings(context=32_768)
    known = measured(host, plan(host, chosen), -0.3)
    gpus = tuple(gpu.model_copy(update={"memory_used_mib": (gpu.memory_used_mib or 0) + 300}) for gpu in known.gpus)
    (idle,), (busy,) = (plan(one, chosen).engines for one in (known, known.model_copy(update={"gpus": gpus})))
    assert busy.measured is not None
    assert pool(busy) < pool(idle)


def test_a_context_that_was_asked_for_is_kept_and_what_does_not_hold_it_is_told() -> None:
    host, chosen = inventories()["1x4090"], settings(context=65_536)
    before = plan(host, chosen)
    (fits,) = plan(measured(host, before, 0.1), chosen).engines
    assert (fits.max_model_len, fits.measured is not None) == (65_536, True)
    after = plan(measured(host, before, 5.0), chosen)
    assert after.engines[0].args == before.engines[0].args
    assert any("does not fit" in text and "lower qwen_context" in text for text in after.warnings)


def test_the_cpu_engine_carries_its_measurement_and_changes_nothing() -> None:
    chosen = settings(**CPU)
    host = HostInventory()
    before = plan(host, chosen)
    (new,) = plan(measured(host, before, 0.0), chosen).engines
    assert new.measured is not None
    assert new.measured.kv_tokens == 70_000
    assert (new.args, new.env) == (before.engines[0].args, before.engines[0].env)
    other = settings(**CPU, cpu_seats=3)
    (warning,) = plan(measured(host, before, 0.0), other).warnings
    assert "no longer holds (max-num-seqs " in warning

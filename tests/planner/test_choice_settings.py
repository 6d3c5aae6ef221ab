"""Settings rule the choice: what is asked for is planned and its cost told, or it is refused with a code."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.host_inventory import Gpu, HostInventory
from qwenlab.planner import plan
from qwenlab.settings import load
from tests.planner.choosing import INVENTORIES, form, only, planned, speed


def test_an_8_gb_laptop_is_refused_with_what_would_fit() -> None:
    host = planned("laptop-8gb")
    assert host.status == "refused"
    (refusal,) = host.refusals
    assert refusal.code == "too-little-memory"
    assert "What would fit: one card with " in refusal.text
    assert "cards like this one" in refusal.text


@pytest.mark.parametrize(
    ("machine", "settings", "code"),
    [
        ("1x3090", {"context": 262_145}, "context-too-long"),
        ("2x3060", {"context": 262_144, "kv_cache_dtype": "bfloat16"}, "override-impossible"),
        ("1x3090", {"tensor_parallel": 2}, "override-impossible"),
        ("3x3090", {"data_parallel": 4}, "override-impossible"),
        ("1x3090", {"checkpoint": "no-such"}, "override-impossible"),
        ("1x3090", {"cards": ["7"]}, "not-selected"),
    ],
)
def test_what_cannot_be_planned_is_refused_with_a_code(machine: str, settings: dict[str, Any], code: str) -> None:
    host = planned(machine, **settings)
    assert host.status == "refused"
    assert [refusal.code for refusal in host.refusals] == [code]
    assert host.engines == ()


def test_a_context_that_is_too_long_is_answered_with_the_longest_that_fits() -> None:
    (refusal,) = planned("1x5080", context=131_072).refusals
    assert refusal.code == "context-too-long"
    longest = int(refusal.text.split("longest context that fits is ")[1].split()[0].replace(",", ""))
    assert only(planned("1x5080", context=longest)).max_model_len == longest
    assert planned("1x5080", context=longest + 2048).status == "refused"


def test_a_host_without_cards_is_refused() -> None:
    host = plan(HostInventory(), load({}))
    assert [refusal.code for refusal in host.refusals] == ["no-gpu"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"compute_capability": (6, 1), "name": "NVIDIA GeForce GTX 1080 Ti"}, "too-old"),
        ({"compute_capability": (7, 5), "name": "NVIDIA GeForce RTX 2080 Ti"}, "silicon-too-old"),
        ({"mig_enabled": True}, "mig"),
        ({"usable": False, "unusable_because": "Xid 79"}, "unusable"),
        ({"memory_total_mib": None}, "memory-unknown"),
    ],
)
def test_cards_that_cannot_serve_say_why(change: dict[str, Any], code: str) -> None:
    inventory = INVENTORIES["1x3090"]
    gpu: Gpu = inventory.gpus[0].model_copy(update=change)
    host = plan(inventory.model_copy(update={"gpus": (gpu,)}), load({}))
    assert [refusal.code for refusal in host.refusals] == [code]


def test_overrides_win_and_the_plan_says_what_they_cost() -> None:
    free = only(planned("2x3090-pcie"))
    forced = planned("2x3090-pcie", data_parallel=2, speculation="mtp")
    engine = only(forced)
    assert (engine.dp, engine.speculation and engine.speculation.method) == (2, "mtp")
    told = [text for text in forced.warnings if "qwen_data_parallel" in text and "qwen_speculation" in text]
    assert len(told) == 1
    assert "TP=2" in told[0]
    assert "% less" in told[0]
    assert speed(free) > speed(engine)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"tensor_parallel": 2}, (2, 1)),
        ({"pipeline_parallel": 2}, (1, 2)),
        ({"layer_split": [24, 40]}, (1, 2)),
    ],
)
def test_fixed_parallel_sizes_are_taken(settings: dict[str, Any], expected: tuple[int, int]) -> None:
    engine = only(planned("2x3090-pcie", **settings))
    assert (engine.tp, engine.pp) == expected
    if "layer_split" in settings:
        assert engine.partition == (24, 40)


def test_a_single_copy_per_port_can_be_asked_for() -> None:
    host = planned("2x3090-pcie", "batch", data_parallel=1, tensor_parallel=1)
    assert [form(engine) for engine in host.engines] == [(1, 1, 1), (1, 1, 1)]
    assert len({engine.port for engine in host.engines}) == 2


def test_only_the_named_cards_are_planned_with() -> None:
    inventory = INVENTORIES["3x3090"]
    host = planned("3x3090", cards=[inventory.gpus[1].uuid])
    assert only(host).gpus == (inventory.gpus[1].uuid,)
    assert {card.gpu for card in host.idle} == {inventory.gpus[0].uuid, inventory.gpus[2].uuid}


def test_quality_decides_between_four_and_eight_bits() -> None:
    formats = {
        quality: only(planned("2x3090-nvlink", quality=quality)).checkpoint.format
        for quality in ("speed", "balanced", "fidelity")
    }
    assert formats["speed"].startswith("int4")
    assert formats["balanced"].startswith("int4")
    assert formats["fidelity"] in ("fp8", "w8a16", "bf16")


def test_vision_costs_memory_where_the_tower_lies() -> None:
    without, seeing = only(planned("1x3090")), only(planned("1x3090", vision=True))
    assert without.kv is not None
    assert seeing.kv is not None
    assert seeing.memory[0].weights > without.memory[0].weights + 0.8

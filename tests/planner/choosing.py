"""Plans for the machines of the table, and what tests look at in them."""

from __future__ import annotations

from typing import Any

from qwenlab.planner import plan
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.settings import load
from tests.planner.machines import inventories

INVENTORIES = inventories()
WORKLOADS = ("chat", "batch", "long", "edit")


def planned(machine: str, workload: str = "chat", **settings: Any) -> HostPlan:
    given = {"qwen_workload": workload, **{f"qwen_{name}": value for name, value in settings.items()}}
    return plan(INVENTORIES[machine], load(given))


def only(host: HostPlan) -> EnginePlan:
    assert host.status == "planned"
    assert len(host.engines) == 1
    return host.engines[0]


def form(engine: EnginePlan) -> tuple[int, int, int]:
    return engine.tp, engine.pp, engine.dp


def names(machine: str, engine: EnginePlan) -> list[str]:
    by_uuid = {gpu.uuid: gpu.name or "" for gpu in INVENTORIES[machine].gpus}
    return [by_uuid[uuid].removeprefix("NVIDIA ").removeprefix("GeForce ") for uuid in engine.gpus]


def speed(engine: EnginePlan) -> float:
    assert engine.predicted is not None
    return engine.predicted.decode_tok_s


def aggregate(engine: EnginePlan) -> float:
    assert engine.predicted is not None
    assert engine.predicted.aggregate_tok_s is not None
    return engine.predicted.aggregate_tok_s

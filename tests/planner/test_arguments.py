"""Every argument, JSON option and variable of every plan is one that vLLM (NCCL, PyTorch, CUDA) really knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from qwenlab.host_inventory import HostInventory
from qwenlab.planner import plan
from qwenlab.planner.plan import EnginePlan, Workload
from qwenlab.render import units_of
from qwenlab.settings import Settings
from tests.planner.machines import inventories
from tests.vllm_env import VERSIONS, environment, hub_configs
from tests.vllm_env.known_variables import KNOWN, VALUES

JUDGE = Path(__file__).resolve().parents[1] / "vllm_env" / "judge.py"
Case = tuple[str, EnginePlan, Settings]


EVERY_NTH = 6  # machines that the fast tests look at; those marked `engine` look at all


@cache
def cases(version: str, step: int = 1) -> tuple[Case, ...]:
    """Every engine that the matrix of machines and workloads plans: name, plan, settings."""
    variants = {
        **{workload.value: Settings(vllm=version, workload=workload.value) for workload in Workload},
        "chat, vision": Settings(vllm=version, vision=True),
        "chat, one tenant of many": Settings(vllm=version, nvlink_multicast=False),
    }
    return tuple(
        (f"{machine}, {variant}, {engine.name}", engine, settings)
        for machine, inventory in list(inventories().items())[::step]
        for variant, settings in variants.items()
        for engine in plan(inventory, settings).engines
    )


def processes(version: str, step: int = 1) -> Iterator[dict[str, Any]]:
    """What each process of each engine is started with, as the deploy writes it; every distinct one once."""
    seen = set()
    for name, engine, settings in cases(version, step):
        inventory = inventories()[name.partition(", ")[0]]
        for unit in units_of(engine, settings):
            one = {
                "args": {**unit.args, "port": 8000},
                "env": dict(unit.env),
                "capability": _capability(unit.env["CUDA_VISIBLE_DEVICES"].split(","), inventory),
            }
            key = json.dumps(one)
            if key not in seen:
                seen.add(key)
                yield {"id": f"{name}, unit {unit.name}", **one}


def _capability(uuids: list[str], inventory: HostInventory) -> tuple[int, int]:
    """What device 0 of the process can do."""
    first = next(gpu for gpu in inventory.gpus if gpu.uuid == uuids[0])
    return first.compute_capability or (8, 6)


def test_the_matrix_is_large_enough() -> None:
    assert len(inventories()) >= 60


SPECULATION = "speculative-config"
WRONG: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    # what is wrong: arguments, variables, the word that a complaint must hold
    "no such option": ({"max-modle-len": 5}, {}, "max-modle-len"),
    "no such type": ({"max-num-seqs": "many"}, {}, "max-num-seqs"),
    "no such choice": ({"dtype": "bfloat17"}, {}, "dtype"),
    "a switch that is read and dropped": ({"enable-flashinfer-autotune": False}, {}, "flashinfer"),
    "no such field": ({SPECULATION: {"method": "mtp", "num_tokens": 3}}, {}, "num_tokens"),
    "no such method": ({SPECULATION: {"method": "mtpp", "num_speculative_tokens": 3}}, {}, "method"),
    "no such draft count": ({SPECULATION: {"method": "mtp", "num_speculative_tokens": 0}}, {}, "num_speculative"),
    "no such compilation field": ({"compilation-config": {"graphs": 3}}, {}, "graphs"),
    "no such graph mode": ({"compilation-config": {"cudagraph_mode": "SOME"}}, {}, "SOME"),
    "no such backend": ({"attention-backend": "FLASH_FRY"}, {}, "FLASH_FRY"),
    "no such mix": ({"kv-cache-dtype": "int3"}, {}, "int3"),
    "more layers than the model has": ({"pipeline-parallel-size": 65}, {}, "65"),
    "no such kernel": ({}, {"VLLM_DISABLED_KERNELS": "NoKernel"}, "NoKernel"),
    "no such variable": ({}, {"VLLM_PP_PARTITION": "1,2"}, "VLLM_PP_PARTITION"),
    "no such value": ({}, {"VLLM_ENGINE_READY_TIMEOUT_S": "soon"}, "VLLM_ENGINE_READY_TIMEOUT_S"),
}


@cache
def verdicts(version: str) -> dict[str, list[str]]:
    """What one vLLM release has against every plan and against the wrong ones, asked in one process."""
    plans = list(processes(version))
    plans += [
        {**plans[0], "id": name, "args": {**plans[0]["args"], **args}, "env": {**plans[0]["env"], **env}}
        for name, (args, env, _) in WRONG.items()
    ]
    asked = json.dumps({"target": hub_configs.target(), "drafter": hub_configs.drafter(), "plans": plans})
    done = environment(version).run([str(JUDGE)], stdin=asked, timeout=600)
    if done.returncode:
        return {"the judge itself": [done.stderr[-4000:]]}
    found = {verdict["id"]: verdict["complaints"] for verdict in json.loads(done.stdout.splitlines()[-1])}
    assert len(found) == len(plans)
    return found


@pytest.mark.engine
@pytest.mark.parametrize("version", VERSIONS)
def test_vllm_itself_accepts_every_plan(version: str) -> None:
    assert len(verdicts(version)) > 300
    assert {name: said for name, said in verdicts(version).items() if said and name not in WRONG} == {}


@pytest.mark.engine
@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_judge_sees_what_vllm_refuses_or_ignores(version: str, what: str) -> None:
    assert any(WRONG[what][2] in complaint for complaint in verdicts(version).get(what, []))


@pytest.mark.parametrize("version", VERSIONS)
def test_variables_of_the_libraries_below_vllm_are_documented_ones(version: str) -> None:
    foreign = {
        (variable, value)
        for plan in processes(version, EVERY_NTH)
        for variable, value in plan["env"].items()
        if not variable.startswith("VLLM_") and variable != "MAX_JOBS"
    }
    assert {variable for variable, _ in foreign} <= KNOWN.keys()
    assert {(variable, value) for variable, value in foreign if value not in VALUES.get(variable, {value})} == set()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_argument_variable_and_patch_has_a_reason_with_a_source(version: str) -> None:
    for name, engine, _ in cases(version, EVERY_NTH):
        accounted = {item for reason in engine.reasons for item in reason.sets}
        named = {
            full
            for option, value in engine.args.items()
            for full in ([f"{option}.{key}" for key in value] if isinstance(value, dict) else [option])
        }
        per_node = {item for process in engine.processes for item in process.env}
        assert {*named, *engine.env, *engine.patches, *per_node} <= accounted, name
        assert all(reason.text and reason.source for reason in engine.reasons), name


def test_engines_of_a_host_share_neither_card_nor_port() -> None:
    for machine, inventory in list(inventories().items())[::EVERY_NTH]:
        for workload in Workload:
            engines = plan(inventory, Settings(workload=workload.value)).engines
            seen = [card for engine in engines for card in engine.env["CUDA_VISIBLE_DEVICES"].split(",")]
            assert len(seen) == len(set(seen)), machine
            assert len({engine.port for engine in engines}) == len(engines), machine

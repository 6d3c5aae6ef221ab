"""The cpu engine's plan: one engine or several, ranks, and the user's arguments over it."""

from __future__ import annotations

import pytest

from qwenlab.host_inventory import HostInventory
from qwenlab.planner import plan
from qwenlab.planner.plan import HostPlan
from qwenlab.render import render
from qwenlab.settings import Settings


def settings(**more: object) -> Settings:
    """Settings of a host that serves a small checkpoint."""
    given = {"engine": "cpu", "cpu_checkpoint": "lab/tiny", "cpu_revision": "01234567" * 5, **more}
    return Settings.model_validate(given)


def made(**more: object) -> HostPlan:
    """The plan."""
    return plan(HostInventory(), settings(**more))


@pytest.mark.parametrize(
    ("engines", "wanted"), [(1, [("cpu", 8000)]), (3, [("cpu", 8000), ("cpu2", 8001), ("cpu3", 8002)])]
)
def test_each_engine_has_a_name_and_a_port(engines: int, wanted: list[tuple[str, int]]) -> None:
    assert [(engine.name, engine.port) for engine in made(cpu_engines=engines).engines] == wanted


def test_a_further_engine_leaves_the_files_of_the_first_alone() -> None:
    one, two = (render(made(cpu_engines=count), settings(cpu_engines=count)) for count in (1, 2))
    first = {path for path in one if path.startswith("/etc/qwen/engines/") or "qwen-engine@" in path}
    assert {path: one[path] for path in first} == {path: two[path] for path in first}


def test_ports_that_do_not_exist_are_refused() -> None:
    refused = made(port=65535, cpu_engines=2)
    assert (refused.status, [one.code for one in refused.refusals]) == ("refused", ["port-out-of-range"])


def test_ranks_share_every_layer_and_the_gate_asks_for_their_shared_memory() -> None:
    (engine,) = made(tensor_parallel=2).engines
    assert (engine.tp, engine.args["tensor-parallel-size"]) == (2, 2)
    gate = render(made(tensor_parallel=2), settings(tensor_parallel=2))["/etc/qwen/engines/cpu.gate.json"].content
    assert '"shm_mib": 1024' in gate


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(16, 2, "8"), (2, 2, "1"), (2, 4, "1"), (None, 2, "1")])
def test_ranks_share_the_hosts_cores(cores: int | None, ranks: int, threads: str) -> None:
    (engine,) = plan(HostInventory(cpu_count=cores), settings(tensor_parallel=ranks)).engines
    assert engine.env["OMP_NUM_THREADS"] == threads
    assert "cpu-threads" in [reason.rule for reason in engine.reasons]


def test_ranks_compile_nothing() -> None:
    """vLLM 0.32.0's ranks compiled a function in spite of enforce-eager: `InvalidCxxCompiler` at the first request."""
    (engine,) = made(tensor_parallel=2).engines
    assert (engine.env["TORCHDYNAMO_DISABLE"], engine.args["enforce-eager"]) == ("1", True)


def test_one_rank_takes_the_threads_that_it_wants() -> None:
    (engine,) = plan(HostInventory(cpu_count=16), settings()).engines
    assert not {"OMP_NUM_THREADS", "TORCHDYNAMO_DISABLE"} & set(engine.env)


def test_the_users_arguments_win() -> None:
    (engine,) = made(engine_args={"max-num-seqs": 2}, engine_env={"VLLM_LOGGING_LEVEL": "DEBUG"}).engines
    assert (engine.args["max-num-seqs"], engine.env["VLLM_LOGGING_LEVEL"]) == (2, "DEBUG")

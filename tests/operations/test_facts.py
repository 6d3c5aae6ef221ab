"""What the host's answers to the deploy's questions mean."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyinfra.api.exceptions import FactProcessError

from qwenlab.driver.toolkit import Toolkit
from qwenlab.facts.cuda_toolkit import CudaToolkit
from qwenlab.facts.engine_release import EngineReleases, EngineState
from qwenlab.facts.engine_units import EngineUnit, EngineUnits, UnitsState
from qwenlab.facts.file_states import PathStates
from qwenlab.facts.planned_inventory import PlannedInventory, without_own_use
from qwenlab.host_inventory import Gpu, HostInventory


def test_releases_are_listed_newest_first_and_the_distribution_s_python_first() -> None:
    answer = [
        "uv=0.13.9",
        "python=/usr/bin/python3 3.13",
        "python=/usr/bin/python3.13 3.13",
        "python=/usr/bin/python3.11 3.11",
        "python=/usr/bin/python3-broken ",
        "current=releases/b",
        "complete=100 a",
        "complete=300 c",
        "complete=200 b",
    ]
    assert EngineReleases().process(answer) == EngineState(
        uv="0.13.9",
        pythons={"3.13": "/usr/bin/python3", "3.11": "/usr/bin/python3.11"},
        current="b",
        complete=("c", "b", "a"),
    )


def test_a_release_whose_interpreter_was_removed_is_none(tmp_path: Path) -> None:
    """A virtual environment's interpreter is a link, and upgrades of the distribution take its target away."""
    targets = {"whole": sys.executable, "broken": "/usr/bin/python3.0"}
    for name, target in targets.items():
        (tmp_path / "releases" / name / "venv/bin").mkdir(parents=True)
        (tmp_path / "releases" / name / "venv/bin/python").symlink_to(target)
        (tmp_path / "releases" / name / "release.json").touch()
    fact = EngineReleases()
    answer = subprocess.check_output(["sh", "-c", fact.command(str(tmp_path), "/nowhere/uv")], text=True)
    assert fact.process(answer.splitlines()).complete == ("whole",)


def test_a_bare_host_has_nothing() -> None:
    assert EngineReleases().process(["uv=", "current="]) == EngineState()


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ([], Toolkit()),
        (
            ["Cuda compilation tools, release 13.0, V13.0.88", "#define CUDART_VERSION  13000", "curand"],
            Toolkit("13.0", "13.0", True),
        ),
        (["Cuda compilation tools, release 12.8, V12.8.93", "#define CUDART_VERSION  12080"], Toolkit("12.8", "12.8")),
        (["curand"], Toolkit(curand=True)),
    ],
)
def test_a_toolkit_is_its_compiler_its_headers_and_those_of_curand(answer: list[str], found: Toolkit) -> None:
    assert CudaToolkit().process(answer) == found


def test_an_engine_is_stale_when_it_runs_with_other_files_than_lie_there() -> None:
    state = EngineUnits().process(["umbrella=active enabled no", "engine=a active no 1 1", "engine=b active no 1 2"])
    assert state == UnitsState(True, True, False, {"a": EngineUnit("active", False), "b": EngineUnit("active", True)})


@pytest.mark.parametrize(
    ("fact", "answer"),
    [
        (EngineReleases(), ["complete=soon a"]),
        (EngineUnits(), ["umbrella=active"]),
        (EngineUnits(), ["engine=a active"]),
        (PathStates(), ["path=file 644 root"]),
    ],
)
def test_an_odd_answer_fails_that_host_alone(
    fact: EngineReleases | EngineUnits | PathStates, answer: list[str]
) -> None:
    with pytest.raises(FactProcessError):
        fact.process(answer)


def test_names_in_questions_are_quoted() -> None:
    assert "'/srv/my models'" in PathStates().command(paths=("/srv/my models",))
    assert "'a; reboot'" in EngineUnits().command(names=("a; reboot",))
    assert "'/opt/a b'" in EngineReleases().command(directory="/opt/a b", uv="uv")


def card(uuid: str, used: int) -> Gpu:
    """A card with so many MiB in use."""
    return Gpu(index=int(uuid), uuid=uuid, memory_total_mib=24_000, memory_used_mib=used)


def test_a_running_engine_s_memory_is_not_taken_for_a_stranger_s() -> None:
    planned = HostInventory(gpus=(card("0", 300), card("1", 0)))
    now = HostInventory(gpus=(card("0", 23_000), card("1", 22_000), card("2", 900)))
    seen = without_own_use(now, planned)
    assert [gpu.memory_used_mib for gpu in seen.gpus] == [300, 0, 900]
    assert without_own_use(now, None) == now


def test_the_inventory_of_the_running_plan_is_read_back_and_a_damaged_one_is_none() -> None:
    planned = HostInventory(gpus=(card("0", 300),))
    assert PlannedInventory().process(planned.model_dump_json(indent=1).splitlines()) == planned
    assert PlannedInventory().process(['{"gpus": [']) is None
    assert PlannedInventory().process([]) is None

"""The gate before a simulated machine's own nvidia-smi: the cards' checks read what that program really prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from qwenlab.remote import cards, gate
from qwenlab.remote.gating import look as gating_look
from qwenlab.remote.gating.cards import check_cards, check_driver, check_links
from qwenlab.remote.gating.look import CONFIG, TEMPORARY, Gate, Problem
from tests.sim import inventory
from tests.sim.faults import Fault
from tests.sim.inventory import Process
from tests.sim.local import SimRoot

Look = Callable[[Fault], list[Problem]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimRoot:
    """Two RTX 3090 with a bridge."""
    root = SimRoot.create(tmp_path / "machine", inventory.load("2x3090-nvlink"))
    for name in ("QWEN_SIM_ROOT", "LD_LIBRARY_PATH", "PATH", "LC_ALL"):
        monkeypatch.setenv(name, root.environment()[name])
    return root


@pytest.fixture
def look(machine: SimRoot, tmp_path: Path) -> Look:
    """What the gate finds on the machine with a fault, for an engine that needs 20 GiB of each card."""
    uuids = [machine.host.uuid(place) for place in (0, 1)]
    etc = tmp_path / "etc"
    etc.mkdir()
    known = {
        "gpus": [{"index": place, "uuid": uuid} for place, uuid in enumerate(uuids)],
        "pairs": [{"a": 0, "b": 1, "nvlink_lanes": 4}],
    }
    (etc / "inventory.json").write_text(json.dumps(known))
    asked = {"cards": uuids, "need_mib": dict.fromkeys(uuids, 20_480)}
    at = Gate(asked, etc=etc, module=machine.path / "sys/module/nvidia/version")

    def found(fault: Fault) -> list[Problem]:
        machine.set_faults(fault)
        return [problem for check in (check_driver, check_cards, check_links) for problem in check(at)]

    return found


def test_healthy_cards_let_the_engine_start(look: Look) -> None:
    assert look(Fault()) == []


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (Fault.lost(1), CONFIG, "fell off the bus"),
        (Fault.absent(1), CONFIG, "is not there; if it was taken out, deploy again"),
        (Fault.processes(1, Process(pid=1, name="other", mib=9_000)), TEMPORARY, "held by process 1 ("),
        (Fault.version_mismatch(), CONFIG, "another NVIDIA module than the library belongs to: reboot"),
        (Fault.init_fails(9), CONFIG, "not loaded"),
        (Fault.missing_nvml(), CONFIG, "not loaded"),
    ],
    ids=["lost", "absent", "held", "mismatch", "not-loaded", "no-library"],
)
def test_a_fault_of_the_cards_is_told(look: Look, fault: Fault, code: int, words: str) -> None:
    found = look(fault)
    assert [problem.code for problem in found if words in problem.text] == [code], found


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault.version_mismatch(), "another NVIDIA module"),
        (Fault.init_fails(9), "not loaded"),
        (Fault.missing_nvml(), "not loaded"),
    ],
    ids=["mismatch", "not-loaded", "no-library"],
)
def test_a_driver_that_answers_for_no_card_is_not_told_as_missing_cards(look: Look, fault: Fault, words: str) -> None:
    (problem,) = look(fault)
    assert words in problem.text


def test_a_driver_that_hangs_is_tried_again(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not taken for a machine whose cards were taken out, which no restart would mend."""
    monkeypatch.setattr(gating_look, "SMI_LIMIT_S", 0.1)
    (problem,) = look(Fault.smi_hangs(600))
    assert (problem.code, "the driver hangs" in problem.text) == (TEMPORARY, True)


def test_a_card_is_let_go_and_the_start_goes_on(look: Look) -> None:
    held = Fault.processes(0, Process(pid=1, name="dying", mib=9_000))
    looks = [held, held, Fault()]
    said: list[str] = []
    assert gate.settle(lambda: look(looks.pop(0)), 60, gate.once(said.append), lambda _: None) == []
    assert len(said) == 1
    assert "held by process 1 (" in said[0]


def test_device_nodes_are_found_by_uuid(machine: SimRoot) -> None:
    rows = machine.run("nvidia-smi", "--query-gpu=uuid,pci.bus_id", "--format=csv,noheader").stdout
    found = cards.nodes(rows, machine.path / "proc/driver/nvidia/gpus")
    assert found == {machine.host.uuid(0): "/dev/nvidia0", machine.host.uuid(1): "/dev/nvidia1"}

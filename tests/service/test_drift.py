"""What a deploy would change on a host beyond files, as plays/status.py tells it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qwenlab.engine.release import pinned_steps
from qwenlab.host_inventory import HostInventory
from qwenlab.measurement import Calibration, Measurement
from qwenlab.operations import status
from qwenlab.planner.cpu import plan_cpu
from qwenlab.planner.measured import measured_with
from qwenlab.service.report import Report
from tests.operations.fake import commands
from tests.operations.test_operations import settings, state, wanted

CALM = ["umbrella=active enabled no", "engine=cpu active no f f"]
CHOSEN = settings()


def measured(**changed: Any) -> str:
    """The record of a host whose engine was measured with other inputs."""
    made = plan_cpu(HostInventory(), CHOSEN)
    inputs = measured_with(made.engines[0], HostInventory(), made.vllm).model_copy(update=changed)
    one = Measurement(engine="cpu", at="2026-01-02T00:00:00Z", inputs=inputs)
    return Calibration(schema=1, engines=(one,)).model_dump_json(by_alias=True)


def notes(
    monkeypatch: pytest.MonkeyPatch, units: list[str], release: str, record: str = "", known: bool = True
) -> list[str]:
    """What the report is given beside files."""
    given: list[list[str]] = []

    def report(said: dict[str, Any], drift: list[str], engines: list[str], told: list[str], services: Any) -> Report:
        given.append(told)
        return Report(said, drift, engines, told, services)

    monkeypatch.setattr(status, "Report", report)
    answers = {
        **state(f"current=releases/{release}"),
        "fingerprint now": units,
        "status.py": json.dumps({"release": release}),
        "calibration.json": record,
    }
    commands(status.report, answers, settings=CHOSEN, steps=pinned_steps(CHOSEN) if known else None)
    return given[-1]


@pytest.mark.parametrize(
    ("units", "words"),
    [
        (CALM, None),
        (["umbrella=active enabled no", "engine=cpu active no f g"], "engine cpu runs with other files"),
        ([*CALM, "engine=old active no f f"], "engine old is active and no longer planned"),
        (["umbrella=active enabled yes", "engine=cpu active no f f"], "systemctl daemon-reload"),
    ],
)
def test_units_that_a_deploy_would_touch(monkeypatch: pytest.MonkeyPatch, units: list[str], words: str | None) -> None:
    told = notes(monkeypatch, units, wanted(CHOSEN))
    assert (told == []) if words is None else (words in told[0])


def test_another_release_is_told_where_the_wanted_one_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    (told,) = notes(monkeypatch, CALM, "cpu-old")
    assert told == f"drift: release cpu-old is current, a deploy would switch to {wanted(CHOSEN)}"
    assert notes(monkeypatch, CALM, "cpu-old", known=False) == []


def test_a_measurement_that_no_longer_holds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notes(monkeypatch, CALM, wanted(CHOSEN), measured()) == []
    (told,) = notes(monkeypatch, CALM, wanted(CHOSEN), measured(vllm="0.31.0"))
    assert "no longer holds (vllm 0.31.0 -> 0.32.0)" in told

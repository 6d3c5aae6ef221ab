"""Status of what stands beside the engines: the gateway, and what belongs to monitoring."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qwenlab.facts.unit_state import UnitRun, UnitRuns
from qwenlab.operations import status
from qwenlab.service.report import Report, Service
from qwenlab.settings import Settings
from tests.operations.fake import commands
from tests.operations.test_operations import settings
from tests.service.test_status import ENGINE, HOST

GATEWAY, PROMETHEUS = "qwen-gateway.service", "qwen-prometheus.service"
CARDS, EXPORTER = "qwen-card-metrics.service", "prometheus-node-exporter.service"
ACTIVE = UnitRun("active", "success", enabled=True)
CURRENT = {
    "/run/qwen-gateway/$1": ["gateway=yes active enabled no", "started=u u", "loaded=f f"],
    "/run/qwen-prometheus/$1": ["prometheus=yes active enabled no", "started=u u", "loaded=f f"],
}


def shown(**runs: UnitRun) -> list[str]:
    """What systemctl prints about the four units."""
    lines = []
    for unit in (GATEWAY, PROMETHEUS, CARDS, EXPORTER):
        run = runs.get(unit.split(".")[0].removeprefix("qwen-").replace("-", "_"), UnitRun())
        there = run.state != "absent"
        lines += [
            f"Id={unit}",
            f"LoadState={'loaded' if there else 'not-found'}",
            f"ActiveState={run.state if there else 'inactive'}",
            f"Result={run.result}",
            f"UnitFileState={('enabled' if run.enabled else 'disabled') if there else ''}",
            "",
        ]
    return lines[:-1]


def report(monkeypatch: pytest.MonkeyPatch, chosen: Settings, answers: dict[str, Any], **runs: UnitRun) -> Report:
    """The report on a host whose units stand so, and whose engine serves."""
    made: list[Report] = []

    def kept(*given: Any, **more: Any) -> Report:
        made.append(Report(*given, **more))
        return made[-1]

    monkeypatch.setattr(status, "Report", kept)
    serving = {"status.py": json.dumps({**HOST, "engines": [{**ENGINE, "name": "cpu"}]})}
    commands(status.report, {"systemctl show -p Id": shown(**runs), **CURRENT, **answers, **serving}, settings=chosen)
    return made[-1]


def test_units_are_read_by_name() -> None:
    failed = UnitRun("failed", "exit-code", enabled=True)
    assert UnitRuns().process(shown(gateway=failed, prometheus=ACTIVE)) == {
        GATEWAY: failed,
        PROMETHEUS: ACTIVE,
        CARDS: UnitRun(),
        EXPORTER: UnitRun(),
    }


@pytest.mark.parametrize(
    ("run", "ok", "line"),
    [
        (ACTIVE, True, "  gateway: active"),
        (
            UnitRun("failed", "exit-code", enabled=True),
            False,
            "  gateway: failed (exit-code), though asked for; why: systemctl status qwen-gateway.service; "
            "journalctl -u qwen-gateway.service; start it, or deploy",
        ),
        (
            UnitRun("inactive", "success", enabled=True),
            False,
            "  gateway: inactive, though asked for; why: systemctl status qwen-gateway.service; "
            "journalctl -u qwen-gateway.service; start it, or deploy",
        ),
        (UnitRun(), False, "  gateway: asked for and not there: deploy"),
    ],
)
def test_a_gateway_that_is_asked_for_must_run(
    monkeypatch: pytest.MonkeyPatch, run: UnitRun, ok: bool, line: str
) -> None:
    made = report(monkeypatch, settings(gateway=True), {}, gateway=run)
    lines = made.lines()
    assert (made.ok, lines[0].startswith("serving: " if ok else "NOT SERVING AS ASKED: ")) == (ok, True)
    assert line in lines
    said = json.loads(made.as_json())
    assert said["ok"] is ok
    assert said["services"] == [
        {"name": "gateway", "unit": GATEWAY, "state": run.state, "result": run.result, "ok": ok}
    ]


def test_a_host_without_a_gateway_says_nothing_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made = report(monkeypatch, settings(), {})
    assert made.ok
    assert "gateway" not in "\n".join(made.lines())


@pytest.mark.parametrize(
    ("chosen", "run", "answers", "note"),
    [
        ({}, ACTIVE, {}, f"drift: {GATEWAY} is active and not asked for: a deploy would remove it"),
        (
            {"gateway": True},
            UnitRun("active"),
            {},
            f"drift: {GATEWAY} is not enabled: after a reboot it would not be started",
        ),
        (
            {"gateway": True},
            ACTIVE,
            {"/run/qwen-gateway/$1": ["gateway=yes active enabled no", "started=u u", "loaded=f g"]},
            f"drift: {GATEWAY} runs with other files than lie there: reload it, or deploy",
        ),
    ],
)
def test_what_a_deploy_would_change_about_it_is_told_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any], run: UnitRun, answers: dict[str, Any], note: str
) -> None:
    made = report(monkeypatch, settings(**chosen), answers, gateway=run)
    assert made.ok
    assert f"  {note}" in made.lines()


@pytest.mark.parametrize(
    ("chosen", "runs", "names", "ok"),
    [
        ({"prometheus": True}, {"prometheus": ACTIVE}, ["Prometheus"], True),
        ({"prometheus": True}, {"prometheus": UnitRun("failed")}, ["Prometheus"], False),
        ({"prometheus": True}, {}, ["Prometheus"], False),
        ({"scraped_from": ["10.0.0.1"]}, {"prometheus_node_exporter": ACTIVE}, ["node exporter"], True),
        ({"scraped_from": ["10.0.0.1"]}, {"prometheus_node_exporter": UnitRun("failed")}, ["node exporter"], False),
        # without a network there may be none, and a deploy says so
        ({"scraped_from": ["10.0.0.1"]}, {}, [], True),
        ({}, {"prometheus_node_exporter": ACTIVE}, [], True),
    ],
)
def test_what_belongs_to_monitoring_must_run_too(
    monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any], runs: dict[str, UnitRun], names: list[str], ok: bool
) -> None:
    made = report(monkeypatch, settings(**chosen), {}, **runs)
    assert ([service.name for service in made.services], made.ok) == (names, ok)


@pytest.mark.parametrize(("run", "ok"), [(ACTIVE, True), (UnitRun("failed", "exit-code"), False)])
def test_a_host_that_is_there_for_monitoring_alone_needs_no_engine(
    monkeypatch: pytest.MonkeyPatch, run: UnitRun, ok: bool
) -> None:
    made = report(monkeypatch, settings(serve=False, prometheus=True), {}, prometheus=run)
    assert made.ok is ok
    assert made.lines()[0] == ("for monitoring alone" if ok else "NOT RUNNING AS ASKED: for monitoring alone")
    assert not any("engine" in line for line in made.lines())


def test_a_reload_is_no_failure() -> None:
    assert Service("gateway", GATEWAY, "reloading").ok

"""Calibration: what a host is asked to measure, what it leaves behind, and how plan and measurement are told."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from qwenlab.engine.release import pinned_steps
from qwenlab.facts.calibration import Measurements
from qwenlab.measurement import Calibration, Measurement
from qwenlab.operations import calibration as operations
from qwenlab.planner import plan
from qwenlab.planner.measured import measured_with
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.rehearsal.engine_log import EngineLog, RankUse
from qwenlab.remote import calibrate
from qwenlab.remote.calibrate import CalibrationError
from qwenlab.render import render
from qwenlab.service.calibration import PINS, due, job, notes, table
from qwenlab.settings import Settings, load
from tests.operations.fake import commands
from tests.operations.test_operations import settings as cpu_settings
from tests.operations.test_operations import state, wanted
from tests.planner.machines.table import inventories

HOST = inventories()["2x3090-nvlink"]
SETTINGS = load({})
PLAN = plan(HOST, SETTINGS)
(ENGINE,) = PLAN.engines
USE = RankUse((0, 0, 0), 23.3, 23.56, 14.0, 1.5, 0.5, 0.5, True)
LOG = EngineLog(kv_tokens=400_000, kv_available_gib=(6.1,), use=(USE, USE), all_reduce=("'CUSTOM'",))


def measurement(**changed: Any) -> Measurement:
    """A measurement of the engine."""
    given = {"beside_gib": (15.5, 15.6), "kv_available_gib": (6.1,), "kv_tokens": 400_000, **changed}
    inputs = measured_with(ENGINE, HOST, PLAN.vllm)
    return Measurement(engine=ENGINE.name, at="2026-01-02T00:00:00Z", inputs=inputs, **given)


def asked(engines: list[EnginePlan] | None = None) -> dict[str, Any]:
    """The job for the host, as it arrives there."""
    text = json.dumps(job(PLAN, [ENGINE] if engines is None else engines, HOST, SETTINGS))
    made: dict[str, Any] = json.loads(text)
    return made


@pytest.mark.parametrize(
    ("measured", "again", "count"), [((), False, 1), ((measurement(),), False, 0), ((measurement(),), True, 1)]
)
def test_an_engine_is_measured_once(measured: tuple[Measurement, ...], again: bool, count: int) -> None:
    host = HOST.model_copy(update={"measurements": measured})
    assert len(due(PLAN, host, again=again)) == count


def test_the_measured_start_lacks_the_pin_and_nothing_else() -> None:
    (engine,) = asked()["engines"]
    (unit,) = engine["units"]
    served = {name: value for name, value in ENGINE.args.items() if name not in PINS}
    assert "kv-cache-memory-bytes" in ENGINE.args
    assert "kv-cache-memory-bytes" not in unit["args"]
    assert {name: unit["args"][name] for name in served} == served
    assert (engine["ranks"], unit["args"]["port"]) == (2, 8000)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host's folders, and systemctl that does nothing."""
    for name in ("etc/qwen/engines", "run/systemd/system"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(calibrate, "RUN", tmp_path / "run/qwen-calibrate")
    monkeypatch.setattr(calibrate, "UNITS", tmp_path / "run/systemd/system")
    monkeypatch.setattr(calibrate, "RECORD", tmp_path / "etc/qwen/calibration.json")
    monkeypatch.setattr(calibrate, "ETC", tmp_path / "etc/qwen")
    monkeypatch.setattr(calibrate, "OWNER", -1)
    monkeypatch.setattr(calibrate, "systemctl", lambda *arguments: 0)
    (tmp_path / "etc/qwen/engines/engine1.yaml").write_text("{}")
    return tmp_path


def starts(monkeypatch: pytest.MonkeyPatch, *logs: EngineLog) -> list[Path]:
    """Let starts say these logs, one after the other; the drop-ins that each of them finds."""
    seen: list[Path] = []
    left = list(logs)

    def start(engine: dict[str, Any]) -> EngineLog:
        seen.extend(sorted(calibrate.UNITS.rglob("*.conf")))
        if not left:
            raise CalibrationError("no further start")
        return left.pop(0)

    monkeypatch.setattr(calibrate, "start", start)
    return seen


def test_what_is_measured_is_a_record_that_the_planner_reads(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = starts(monkeypatch, LOG)
    assert calibrate.measure(asked()) == 0
    assert [path.parent.name for path in seen] == ["qwen-engine@engine1.service.d"]
    assert list((host / "run").rglob("*.conf")) == []
    assert not (host / "run/qwen-calibrate").exists()
    record = Calibration.model_validate_json((host / "etc/qwen/calibration.json").read_text())
    (found,) = record.engines
    assert found.beside_gib == (15.5, 15.5)
    assert found.inputs == measured_with(ENGINE, HOST, PLAN.vllm)
    (engine,) = plan(HOST.model_copy(update={"measurements": record.engines}), SETTINGS).engines
    assert engine.measured is not None
    assert [round(rank.weights + rank.workspace + rank.graphs, 2) for rank in engine.memory] == [15.5, 15.5]


def test_a_cold_start_is_measured_again_and_a_second_one_says_so(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = EngineLog(kv_tokens=300_000, use=(USE, USE), cold=True)
    for logs, tokens, is_cold in (((cold, LOG), 400_000, False), ((cold, cold), 300_000, True)):
        starts(monkeypatch, *logs)
        assert calibrate.measure(asked()) == 0
        (found,) = json.loads((host / "etc/qwen/calibration.json").read_text())["engines"]
        assert (found["kv_tokens"], found["cold"]) == (tokens, is_cold)


@pytest.mark.parametrize(
    ("logs", "words"),
    [
        ((), "no further start"),
        ((EngineLog(kv_tokens=1, use=(USE,)),), "has 2 ranks and 1 of them said what they use"),
        ((EngineLog(use=(USE, USE)),), "did not say how large its KV pool is"),
    ],
)
def test_what_cannot_be_measured_changes_no_record_and_is_undone(
    host: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    logs: tuple[EngineLog, ...],
    words: str,
) -> None:
    record = host / "etc/qwen/calibration.json"
    record.write_text("former")
    starts(monkeypatch, *logs)
    assert calibrate.measure(asked()) == 1
    assert words in capsys.readouterr().err
    assert record.read_text() == "former"
    called: list[tuple[str, ...]] = []

    def systemctl(*arguments: str) -> int:
        called.append(arguments)
        return 0

    monkeypatch.setattr(calibrate, "systemctl", systemctl)
    assert calibrate.restore() == 0
    assert ("restart", "qwen-engine@engine1.service") in called
    assert [path for path in (host / "run").rglob("*") if path.is_file()] == []
    called.clear()
    assert calibrate.restore() == 0
    assert called == []


def test_measurements_of_other_planned_engines_stay(host: Path) -> None:
    path = host / "etc/qwen/calibration.json"
    one, two, gone = ({"engine": name, "value": 1} for name in ("one", "two", "gone"))
    calibrate.record([two, gone, one], ["one", "two", "gone"], path)
    calibrate.record([{"engine": "two", "value": 2}], ["one", "two"], path)
    said = json.loads(path.read_text())
    assert said == {"schema": 1, "engines": [one, {"engine": "two", "value": 2}]}


@pytest.mark.parametrize("text", ["", "{", '{"schema": 2, "engines": []}', '{"engines": [{"engine": 1}]}'])
def test_a_damaged_record_counts_as_none(text: str) -> None:
    assert Measurements().process([text]) == ()


def test_plan_and_measurement_stand_side_by_side() -> None:
    found = measurement(all_reduce=("'CUSTOM'",), transports=("P2P/CUMEM",))
    (now,) = plan(HOST.model_copy(update={"measurements": (found,)}), SETTINGS).engines
    text = "\n".join(table(ENGINE, now, found))
    assert "engine1 measured 2026-01-02T00:00:00Z, vLLM 0.33.0, driver " in text
    for row in ("rank 1 beside the pool, GiB", "15.60", "KV pool, tokens", "400,000", "P2P/CUMEM", "all-reduce"):
        assert row in text
    assert "note:" not in text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cold": True}, "caches were still cold"),
        ({"transports": ("SHM/direct/direct",)}, "counts on peer access between the cards and NCCL took SHM"),
        ({"all_reduce": ("'PYNCCL'",)}, "vLLM's own all-reduce was planned and is not used"),
    ],
)
def test_what_came_otherwise_than_planned_is_noted(changed: dict[str, Any], words: str) -> None:
    (note,) = notes(ENGINE, measurement(**changed))
    assert words in note


def facts(chosen: Settings, made: HostPlan, *, deployed: bool, measured: str = "") -> dict[Any, Any]:
    """Answers of a cpu host."""
    rows = [
        f"path=file {file.mode} {file.user} {file.group} {sha256(file.content.encode()).hexdigest()} {path}"
        for path, file in render(made, chosen).items()
    ]
    return {
        **state(f"current=releases/{wanted(chosen)}", f"complete=5 {wanted(chosen)}"),
        "sha256sum": rows if deployed else rows[1:],
        "calibration.json": measured,
    }


def measured_commands(*, deployed: bool, measured: bool = False) -> list[tuple[str, str]]:
    """What the operation does on a cpu host."""
    chosen = cpu_settings()
    made = plan(HOST, chosen)
    (engine,) = made.engines
    inventory = HOST.model_copy(update={"driver": HOST.driver.model_copy(update={"loaded": None})})
    one = Measurement(engine="cpu", at="x", inputs=measured_with(engine, inventory, made.vllm), kv_tokens=1)
    record = Calibration(schema=1, engines=(one,)).model_dump_json(by_alias=True) if measured else ""
    return commands(
        operations.measure,
        facts(chosen, made, deployed=deployed, measured=record),
        settings=chosen,
        steps=pinned_steps(chosen),
    )


def test_a_host_that_is_not_deployed_as_asked_is_refused() -> None:
    ((kind, words),) = measured_commands(deployed=False)
    assert kind == "refused"
    assert words.endswith("deploy first")


def test_a_measurement_that_holds_is_not_repeated() -> None:
    assert measured_commands(deployed=True, measured=True) == []


def test_a_host_that_serves_as_asked_is_measured_by_a_unit_that_ends_as_planned_however_it_ends() -> None:
    (put, stdin), (run, _) = measured_commands(deployed=True)
    assert put.endswith("cat > /run/qwen-calibrate/job.json")
    assert [engine["name"] for engine in json.loads(stdin)["engines"]] == ["cpu"]
    assert "systemd-run --quiet --collect --wait --unit=qwen-calibrate" in run
    assert "ExecStopPost=/usr/bin/python3 -B /usr/local/lib/qwen/calibrate.py restore" in run

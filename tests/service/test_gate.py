"""The gate: every reason against a start, with its words and whether waiting may help."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qwenlab.remote import gate
from qwenlab.remote.gating import restarts
from qwenlab.remote.gating.cards import check_cards
from qwenlab.remote.gating.look import CONFIG, TEMPORARY, Gate, Problem

CARD = "GPU-00000000-0000-0000-0000-000000000001"
OTHER = "GPU-00000000-0000-0000-0000-000000000002"
HEALTHY = {
    "driver_version": (0, [["580.95.05"]]),
    "uuid,name": (0, [[CARD, "NVIDIA RTX 3090", "24576", "10"], [OTHER, "NVIDIA RTX 3090", "24576", "10"]]),
    "index,uuid": (0, [["0", CARD], ["1", OTHER]]),
    "gpu_uuid": (0, [[CARD, "1", "8000"]]),
    "topo": (0, [["\tGPU0\tGPU1\tCPU Affinity"], ["GPU0\t X \tNV4\t0-7"], ["GPU1\tNV4\t X \t0-7"]]),
}
Answer = tuple[int, list[list[str]]]


def smi(**changed: Answer) -> Callable[..., Answer]:
    """nvidia-smi of a machine with two cards; `changed` replaces answers by the start of the query."""
    answers = {**HEALTHY, **{name.replace("__", ","): answer for name, answer in changed.items()}}

    def ask(*arguments: str) -> Answer:
        query = arguments[0].split("=", 1)[-1]
        return next(answer for start, answer in answers.items() if query.startswith(start))

    return ask


@pytest.fixture
def good(tmp_path: Path) -> Gate:
    """A host on which the engine may start."""
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "plan.json").write_text("{}")
    pairs = [{"a": 0, "b": 1, "nvlink_lanes": 4}]
    gpus = [{"index": 0, "uuid": CARD}, {"index": 1, "uuid": OTHER}]
    (etc / "inventory.json").write_text(json.dumps({"gpus": gpus, "pairs": pairs}))
    release = tmp_path / "release"
    (release / "venv/bin").mkdir(parents=True)
    (release / "release.json").write_text('{"steps": []}')
    (release / "venv/bin/python").touch(mode=0o755)
    model = tmp_path / "model"
    model.mkdir()
    (model / "a.safetensors").write_text("1234")
    (model / "manifest.json").write_text(json.dumps({"files": [{"path": "a.safetensors", "size": 4}]}))
    key = tmp_path / "api_key"
    key.touch(mode=0o600)
    key.write_text("0123456789\n")
    settings = tmp_path / "cpu.yaml"
    settings.write_text("model: /m\n# end of file\n")
    module = tmp_path / "module"
    module.write_text("580.95.05\n")
    asked = {
        "cards": [CARD, OTHER],
        "need_mib": {CARD: 20000, OTHER: 20000},
        "host": "127.0.0.1",
        "port": None,
        "checkpoints": [str(model)],
        "release": str(release),
        "home": str(tmp_path),
        "files": [str(settings)],
        "secrets": [str(key)],
        "shm_mib": 1,
        "wait_s": 0,
    }
    return Gate(asked, etc=etc, module=module, smi=smi())


def test_a_good_host_may_start(good: Gate) -> None:
    assert gate.problems(good) == []


def _truncate_plan(at: Gate) -> None:
    (at.etc / "plan.json").write_text('{"engines": [')


def _open_key(at: Gate) -> None:
    Path(at.asked["secrets"][0]).chmod(0o644)


def _empty_key(at: Gate) -> None:
    Path(at.asked["secrets"][0]).write_text("")


def _no_key(at: Gate) -> None:
    Path(at.asked["secrets"][0]).unlink()


def _half_the_settings(at: Gate) -> None:
    Path(at.asked["files"][0]).write_text("model: /m\n")


def _no_settings(at: Gate) -> None:
    Path(at.asked["files"][0]).unlink()


def _release_without_mark(at: Gate) -> None:
    Path(at.asked["release"], "release.json").unlink()


def _shorter_file(at: Gate) -> None:
    Path(at.asked["checkpoints"][0], "a.safetensors").write_text("1")


def _no_manifest(at: Gate) -> None:
    Path(at.asked["checkpoints"][0], "manifest.json").unlink()


def _damaged_manifest(at: Gate) -> None:
    Path(at.asked["checkpoints"][0], "manifest.json").write_text("{")


def _module(at: Gate) -> None:
    at.module.write_text("570.1\n")


def _shm(at: Gate) -> None:
    at.asked["shm_mib"] = 10**9


def _answers(**changed: Answer) -> Callable[[Gate], None]:
    def change(at: Gate) -> None:
        at.smi = smi(**changed)

    return change


ONE_CARD: Answer = (0, [[CARD, "NVIDIA RTX 3090", "24576", "10"]])
FULL: Answer = (0, [[CARD, "NVIDIA RTX 3090", "24576", "8010"], [OTHER, "NVIDIA RTX 3090", "24576", "10"]])
SILENT: Answer = (15, [[CARD, "NVIDIA RTX 3090", "[N/A]", "[GPU is lost]"], HEALTHY["uuid,name"][1][1]])
NARROW: Answer = (0, [["\tGPU0\tGPU1"], ["GPU0\t X \tNV2"], ["GPU1\tNV2\t X "]])
UNBRIDGED: Answer = (0, [["\tGPU0\tGPU1"], ["GPU0\t X \tPHB"], ["GPU1\tPHB\t X "]])


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (_truncate_plan, CONFIG, "plan.json is missing or damaged: deploy again"),
        (_open_key, CONFIG, "can be read by others (mode 644, owner 0): chown root: "),
        (_empty_key, CONFIG, "api_key is empty or too short: remove it and deploy again"),
        (_no_key, CONFIG, "api_key is missing: deploy again"),
        (_half_the_settings, CONFIG, "cpu.yaml is missing or cut off: deploy again"),
        (_no_settings, CONFIG, "cpu.yaml is missing or cut off: deploy again"),
        (_release_without_mark, CONFIG, "is not complete: deploy again"),
        (_shorter_file, CONFIG, "a.safetensors is missing or has another size than its manifest says"),
        (_no_manifest, CONFIG, "is not complete: deploy again"),
        (_damaged_manifest, CONFIG, "manifest.json is damaged"),
        (_answers(driver_version=(127, [])), CONFIG, "nvidia-smi is missing"),
        (_answers(driver_version=(124, [])), TEMPORARY, "the driver hangs"),
        (_answers(driver_version=(18, [])), CONFIG, "another NVIDIA module than the library belongs to: reboot"),
        (_answers(driver_version=(9, [])), CONFIG, "driver is not loaded: modprobe nvidia"),
        (_module, CONFIG, "the kernel runs NVIDIA module 570.1 and the library is 580.95.05: reboot"),
        (_answers(uuid__name=ONE_CARD), CONFIG, f"card {OTHER} is not there"),
        (_answers(uuid__name=(15, ONE_CARD[1])), CONFIG, f"card {OTHER} fell off the bus"),
        (_answers(uuid__name=SILENT), CONFIG, "does not answer ([GPU is lost])"),
        (_answers(uuid__name=FULL), TEMPORARY, "has 16566 MiB free and the plan needs 20000: held by process 1 ("),
        (_answers(topo=NARROW), CONFIG, "has 2 of 4 lanes: reseat the bridge"),
        (_answers(topo=UNBRIDGED), CONFIG, "has 0 of 4 lanes"),
        (_shm, CONFIG, "mount -o remount,size=2000000000m /dev/shm"),
    ],
)
def test_each_fault_has_its_words(good: Gate, spoil: Callable[[Gate], None], code: int, words: str) -> None:
    spoil(good)
    (problem,) = gate.problems(good)
    assert words in problem.text
    assert problem.code == code


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]"])
@pytest.mark.parametrize(
    ("unified", "available_mib", "words"),
    [
        (True, 60000, None),
        (True, 19000, "the host has 19000 MiB of RAM available and the plan needs 20000"),
        (False, 60000, "does not answer"),
    ],
)
def test_a_card_without_memory_of_its_own_is_measured_by_the_hosts(
    good: Gate, tmp_path: Path, word: str, unified: bool, available_mib: int, words: str | None
) -> None:
    good.asked["cards"] = [CARD]
    good.proc = tmp_path
    (tmp_path / "meminfo").write_text(f"MemTotal:  127535744 kB\nMemAvailable:  {available_mib << 10} kB\n")
    gpu = {"index": 0, "uuid": CARD, "memory_unified": unified}
    (good.etc / "inventory.json").write_text(json.dumps({"gpus": [gpu], "pairs": []}))
    good.smi = smi(uuid__name=(0, [[CARD, "NVIDIA GB10", word, word]]))
    found = [problem.text for problem in check_cards(good)]
    assert len(found) == (words is not None)
    assert all(words in text for text in found if words)


def test_a_checkpoint_that_was_fetched_with_a_mark_alone_counts_as_whole(good: Gate) -> None:
    model = Path(good.asked["checkpoints"][0])
    (model / "manifest.json").unlink()
    (model / ".complete").touch()
    assert gate.problems(good) == []


def test_a_host_without_cards_is_not_asked_for_a_driver(good: Gate) -> None:
    good.asked["cards"] = []
    good.smi = smi(driver_version=(127, []))
    assert gate.problems(good) == []


def test_a_taken_port_names_who_holds_it(good: Gate) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        good.asked["port"] = server.getsockname()[1]
        (problem,) = gate.problems(good)
    assert f"held by process {os.getpid()} (" in problem.text
    assert problem.code == TEMPORARY
    assert gate.problems(good) == []


def _never(seconds: float) -> None:
    pytest.fail(f"paused {seconds} s")


def test_what_may_pass_is_waited_for_and_said_while_waiting() -> None:
    looks = [[Problem("held", TEMPORARY)], [Problem("held", TEMPORARY)], []]
    said: list[str] = []
    assert gate.settle(lambda: looks.pop(0), 60, gate.once(said.append), lambda _: None) == []
    assert said == ["waiting: held"]


def test_what_waiting_cannot_mend_is_told_at_once() -> None:
    found = [Problem("gone", CONFIG), Problem("held", TEMPORARY)]
    assert gate.settle(lambda: found, 60, pytest.fail, _never) == found


def test_patience_ends() -> None:
    held = [Problem("held", TEMPORARY)]
    assert gate.settle(lambda: held, 0, pytest.fail, _never) == held


def test_restarts_back_off_and_are_forgotten_after_an_hour(tmp_path: Path) -> None:
    record = tmp_path / "restarts"
    assert [restarts.recent_restarts(total, record, now) for total, now in ((1, 0), (2, 20), (3, 60))] == [1, 2, 3]
    assert restarts.recent_restarts(4, record, 3601) == 3
    assert restarts.recent_restarts(0, record, 3700) == 0
    assert [restarts.restart_pause(count) for count in (0, 1, 2, 3, 4, 5, 6, 40)] == [0, 0, 20, 40, 80, 160, 300, 300]


def test_a_suspect_compile_cache_is_set_aside(tmp_path: Path) -> None:
    assert restarts.set_cache_aside(tmp_path) is None
    for content in ("first", "second"):
        cache = tmp_path / ".cache/vllm/torch_compile_cache"
        cache.mkdir(parents=True)
        (cache / "file").write_text(content)
        aside = restarts.set_cache_aside(tmp_path)
        assert aside is not None
        assert (aside / "file").read_text() == content
        assert not cache.exists()


def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None) -> dict[str, Any]:
    """The verdict that the program leaves for an engine with this gate file."""
    (tmp_path / "engines").mkdir(exist_ok=True)
    if text is not None:
        (tmp_path / "engines/cpu.gate.json").write_text(text)
    monkeypatch.setattr(gate, "ETC", tmp_path)
    monkeypatch.setattr(gate, "RUN", tmp_path / "run")
    assert gate.main(["cpu"]) == 0
    verdict: dict[str, Any] = json.loads((tmp_path / "run/cpu.gate").read_text())
    return verdict


@pytest.mark.parametrize("text", [None, "", '{"wait_s": 1', "[]", "{}"])
def test_a_damaged_gate_file_refuses_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    verdict = judged(tmp_path, monkeypatch, text)
    assert verdict["code"] == CONFIG
    assert "cpu.gate.json is missing or damaged: deploy again" in verdict["reasons"][0]


def test_what_the_engine_cannot_tell_for_want_of_an_interpreter_the_gate_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(good.asked["release"], "venv/bin/python").unlink()
    judged(tmp_path, monkeypatch, json.dumps({**good.asked, "cards": []}))
    assert f"gate: refused: the engine release {good.asked['release']} is not complete" in capsys.readouterr().out


def test_the_verdict_can_be_read_by_the_service_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: Gate
) -> None:
    verdict = judged(tmp_path, monkeypatch, json.dumps({**good.asked, "cards": []}))
    assert (tmp_path / "run/cpu.gate").stat().st_mode & 0o777 == 0o644
    assert verdict["code"] == CONFIG  # this /etc has no plan.json

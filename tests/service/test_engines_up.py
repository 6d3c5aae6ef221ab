"""The umbrella's program, with a systemctl and a systemd-notify that say what the test wants."""

from __future__ import annotations

import os
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

SYSTEMCTL = """\
#!/bin/sh
echo "systemctl $*" >> "$LOG"
[ "$1" = show ] || exit 0
shift 5
for unit in "$@"; do
    echo "Id=$unit"
    echo "ActiveState=$(cat "$STATES/$unit" 2>/dev/null || echo inactive)"
done
"""
NOTIFY = """\
#!/bin/sh
echo "notify $*" >> "$LOG"
[ "$1" != --ready ] || mv "$STATES/later" "$STATES/$AFTER_READY"
"""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The program, with /etc/qwen/engines below the test's folder."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "states").mkdir()
    (tmp_path / "engines").mkdir()
    text = files("qwenlab.remote").joinpath("engines-up").read_text()
    text = text.replace("/etc/qwen/engines", str(tmp_path / "engines"))
    for name, content in {"engines-up": text, "systemctl": SYSTEMCTL, "systemd-notify": NOTIFY}.items():
        program = tmp_path / "bin" / name
        program.write_text(content)
        program.chmod(0o755)
    return tmp_path


def run(at: Path, *arguments: str, after_ready: str = "none", **environment: str) -> tuple[int, str, list[str]]:
    """Exit code, words and what was called."""
    log = at / "log"
    done = subprocess.run(
        [str(at / "bin/engines-up"), *arguments],
        env={
            **os.environ,
            "PATH": f"{at / 'bin'}:{os.environ['PATH']}",
            "LOG": str(log),
            "STATES": str(at / "states"),
            "AFTER_READY": after_ready,
            "ENGINES_UP_POLL_S": "0.01",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stderr, log.read_text().splitlines() if log.exists() else []


def let(at: Path, **states: str) -> None:
    """Engines with their states; `later` is the state that one of them takes after the start."""
    for name, state in states.items():
        unit = name if name == "later" else f"qwen-engine@{name}.service"
        (at / "states" / unit).write_text(state)
        if name != "later":
            (at / f"engines/{name}.yaml").touch()


def test_the_engine_that_does_not_come_up_is_named(programs: Path) -> None:
    let(programs, cpu="active", cpu2="failed")
    code, said, called = run(programs, "start", "cpu", "cpu2")
    assert code == 1
    assert said.splitlines() == [
        "engine cpu2 is failed: see 'systemctl status qwen-engine@cpu2.service' and "
        "'journalctl -u qwen-engine@cpu2.service'"
    ]
    assert called[:2] == [
        f"systemctl {verb} qwen-engine@cpu.service qwen-engine@cpu2.service" for verb in ("reset-failed", "start")
    ]
    assert not any(line.startswith("notify --ready") for line in called)


@pytest.mark.parametrize("name", ["cpu2", "added-since"])
@pytest.mark.parametrize("state", ["failed", "inactive"])
def test_it_stays_until_an_engine_has_failed_or_was_stopped(programs: Path, name: str, state: str) -> None:
    let(programs, **{"cpu": "active", "cpu2": "active", name: "active", "later": state})
    code, said, called = run(programs, "start", "cpu", "cpu2", after_ready=f"qwen-engine@{name}.service")
    assert code == 1
    assert said.startswith(f"engine {name} is {state}: see ")
    assert len(said.splitlines()) == 1
    assert "notify --ready --status=every engine answers" in called


def test_a_stop_waits_for_the_engines(programs: Path) -> None:
    assert run(programs, "stop", "cpu", MAINPID="12")[2] == ["systemctl stop qwen-engine@cpu.service"]


def test_what_serves_goes_on_when_another_engine_failed(programs: Path) -> None:
    assert run(programs, "stop", "cpu", "cpu2", SERVICE_RESULT="exit-code") == (0, "", [])


def test_a_signal_to_the_umbrella_stops_no_engine_and_starts_it_anew(programs: Path) -> None:
    """SIGTERM counts as success to systemd; only the missing main process tells it from `systemctl stop`."""
    assert run(programs, "stop", "cpu", SERVICE_RESULT="success")[2] == ["systemctl start --no-block qwen.service"]


@pytest.mark.parametrize(("result", "again"), [("signal", 1), ("oom-kill", 1), ("exit-code", 0), ("success", 0)])
def test_the_umbrella_comes_back_when_it_was_killed_and_not_when_it_had_its_say(
    programs: Path, result: str, again: int
) -> None:
    assert run(programs, "ended", SERVICE_RESULT=result)[2] == ["systemctl start --no-block qwen.service"] * again

"""apt-get as it is called on hosts: run by a real shell, with an apt-get that says what apt says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qwenlab.operations import apt

HELD = "E: Could not get lock {lock}. It is held by process 4711 (unattended-upgr)"
LISTS, FRONTEND = "/var/lib/apt/lists/lock", "/var/lib/dpkg/lock-frontend"
WAITED = f"E: Unable to acquire the dpkg frontend lock ({FRONTEND}), is another process using it?"


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A folder for an apt-get that logs its arguments in `log`."""
    return tmp_path


def run(fake: Path, body: str, timeout: int) -> tuple[int, str, list[str]]:
    """Exit code and words of an install, and the arguments of each call of apt-get."""
    program = fake / "apt-get"
    program.write_text(f'#!/bin/sh\necho "$*" >> {fake}/log\n{body}\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake}:{os.environ['PATH']}"}
    command = apt.install(["nvidia-driver-cuda"], timeout=timeout).get_raw_value()
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, (fake / "log").read_text().splitlines()


def test_b14_a_lock_that_does_not_come_free_is_told_with_its_holder(fake: Path) -> None:
    """apt that was told to wait keeps the holder's name to itself."""
    held = HELD.format(lock=FRONTEND)
    code, said, calls = run(fake, f'case "$*" in *Timeout=0*) echo "{held}" ;; *) echo "{WAITED}" ;; esac; exit 100', 1)
    assert code == 100
    assert held in said
    assert "Do not delete the lock" in said
    assert ["Timeout=1 " in calls[0], "Timeout=0 " in calls[1], len(calls)] == [True, True, 2]


def test_b14_a_lock_that_comes_free_in_the_last_moment_is_taken(fake: Path) -> None:
    code, said, _ = run(fake, f'case "$*" in *Timeout=0*) exit 0 ;; esac; echo "{WAITED}"; exit 100', 1)
    assert (code, said) == (0, "")


def test_b14_the_lock_on_the_lists_is_asked_for_again_until_the_time_is_up(fake: Path) -> None:
    body = f'[ "$(wc -l < {fake}/log)" -gt 1 ] || {{ echo "{HELD.format(lock=LISTS)}"; exit 100; }}'
    code, _, calls = run(fake, body, 30)
    assert (code, len(calls)) == (0, 2)
    (fake / "log").unlink()
    code, said, calls = run(fake, f'echo "{HELD.format(lock=LISTS)}"; exit 100', 0)
    assert (code, len(calls)) == (100, 1)
    assert "process 4711" in said


def test_other_failures_are_told_once_and_as_they_are(fake: Path) -> None:
    code, said, calls = run(fake, 'echo "E: Unable to locate package nvidia-driver-cuda"; exit 100', 30)
    assert (code, said, len(calls)) == (100, "E: Unable to locate package nvidia-driver-cuda\n", 1)

"""What systemd and the way back promise, on a host with real vLLM: stops that have stopped, failures that are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.deploying import TOO_LONG, ask, deploy, play
from tests.lab.serving import UNIT, Served, show

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

LIMIT = "systemctl show -p MemoryMax --value qwen.slice"


def test_a_stop_returns_when_the_engine_is_down_and_a_restart_when_it_answers(served: Served) -> None:
    host = served.host
    before = show(host, "MainPID")
    host.ssh_run("systemctl restart qwen", timeout=300)
    assert ask(host)[0] == 200
    assert show(host, "MainPID") != before
    said = host.ssh_run(f"systemctl stop qwen; systemctl is-active {UNIT} qwen", check=False).stdout.split()
    assert said == ["inactive", "inactive"]
    host.ssh_run("systemctl start qwen", timeout=300)
    assert ask(host)[0] == 200


def test_another_memory_limit_holds_without_a_restart(served: Served) -> None:
    before, limit = show(served.host, "MainPID"), served.host.ssh_run(LIMIT).stdout
    run = deploy(served.with_settings("limit", qwen_memory_percent=80))
    assert run.code == 0, run.text
    assert served.host.ssh_run(LIMIT).stdout != limit
    assert show(served.host, "MainPID") == before
    assert deploy(served.inventory).code == 0
    assert served.host.ssh_run(LIMIT).stdout == limit


def test_a_failed_change_of_the_release_directory_is_undone_told_and_not_tried_again_unasked(served: Served) -> None:
    host = served.host
    wrong = served.with_settings("wrong", qwen_release_directory="/srv/other", qwen_cpu_context=TOO_LONG)
    run = deploy(wrong)
    assert run.code == 1
    assert "rolled back: release cpu-" in run.text
    assert ask(host)[0] == 200

    before = show(host, "MainPID")
    run = deploy(wrong)
    assert run.code == 1
    assert "this very plan and release" in run.text
    assert "--data qwen_retry_failed=True" in run.text
    assert show(host, "MainPID") == before

    status = play(served.inventory, "status.py")
    assert status.returncode == 0, status.stderr
    assert "serving: release cpu-" in status.stderr
    assert "(it did not start) and was rolled back" in status.stderr

    run = deploy(served.inventory)
    assert run.code == 0, run.text
    assert show(host, "MainPID") == before
    kept = json.loads(host.ssh_run("cat /var/lib/qwenlab/generations/failed.json").stdout)
    assert Path(kept["release"]).name.startswith("cpu-")


def test_a_stopped_engine_is_told_as_stopped(served: Served) -> None:
    served.host.ssh_run("systemctl stop qwen; systemctl disable qwen")
    status = play(served.inventory, "status.py", "--data", "qwen_status_json=True")
    assert status.returncode == 1
    said = json.loads(next(line for line in status.stdout.splitlines() if line.startswith('{"host"')))
    assert (said["ok"], said["enabled"], said["engines"][0]["state"]) == (False, False, "inactive")
    assert "answering on" not in play(served.inventory, "status.py").stderr
    served.host.ssh_run("systemctl enable qwen; systemctl start qwen", timeout=300)
    assert ask(served.host)[0] == 200

"""plays/calibrate.py on a host that serves with real vLLM: cut off anywhere it leaves the served plan, and it ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import lab
from tests.lab.deploying import ask, deploy, play, play_command
from tests.lab.serving import UNIT, Served, show

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

RECORD = "/etc/qwen/calibration.json"
LEFT = "ls -d /run/qwen-calibrate /run/systemd/system/qwen-engine@* " + RECORD
MEASURING = f"systemctl show -p ExecStart {UNIT} | grep -q /run/qwen-calibrate/cpu.yaml"


@contextmanager
def measuring(served: Served) -> Iterator[subprocess.Popen[str]]:
    """The play, at the moment when the engine is being started without its pin."""
    command, environment = play_command(served.inventory, "calibrate.py")
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, env=environment, cwd=environment["PWD"], text=True, stdout=quiet) as run:
        try:
            served.host.ssh_run(f"timeout 120 sh -c 'until {MEASURING}; do sleep 0.2; done'", timeout=130)
            yield run
        finally:
            run.kill()


def document(host: lab.Host, path: str) -> Any:
    """A JSON file on the host."""
    return json.loads(host.get(path))


def test_power_off_while_measuring_leaves_the_served_plan(served: Served) -> None:
    host = served.host
    plan = host.get("/etc/qwen/plan.json")
    with measuring(served):
        host.power_off()
    host.power_on()
    host.ssh_run("systemctl start qwen", timeout=300)
    assert host.ssh_run(LEFT, check=False).stdout == ""
    assert host.get("/etc/qwen/plan.json") == plan
    assert ask(host)[0] == 200


def test_killed_while_measuring_the_engine_comes_back_as_planned(served: Served) -> None:
    host = served.host
    with measuring(served):
        host.ssh_run("systemctl kill -s KILL --kill-whom=main qwen-calibrate || systemctl kill -s KILL qwen-calibrate")
        gone = (
            "until ! systemctl is-active -q qwen-calibrate && systemctl is-active -q qwen-engine@cpu; do sleep 1; done"
        )
        host.ssh_run(f"timeout 300 sh -c '{gone}'", timeout=310)
    assert host.ssh_run(LEFT, check=False).stdout == ""
    assert host.ssh_run(MEASURING, check=False).returncode != 0
    assert ask(host)[0] == 200


def test_a_calibration_is_kept_used_and_not_repeated(served: Served) -> None:
    host = served.host
    before = show(host, "MainPID")
    run = play(served.inventory, "calibrate.py")
    assert run.returncode == 0, run.stderr
    assert "cpu measured 20" in run.stderr
    assert "KV pool, tokens" in run.stderr
    (found,) = document(host, RECORD)["engines"]
    assert (found["engine"], found["inputs"]["vllm"], found["cold"]) == ("cpu", "0.32.0", False)
    (engine,) = document(host, "/etc/qwen/plan.json")["engines"]
    assert engine["measured"]["kv_tokens"] == found["kv_tokens"] > 1000
    assert host.ssh_run(MEASURING, check=False).returncode != 0
    assert ask(host)[0] == 200

    after = show(host, "MainPID")
    assert after != before
    again = play(served.inventory, "calibrate.py")
    assert again.returncode == 0, again.stderr
    run_again = deploy(served.inventory)
    assert (run_again.code, run_again.changed) == (0, ()), run_again.text
    assert show(host, "MainPID") == after


def test_another_input_ends_the_measurement_and_the_plan_says_so(served: Served) -> None:
    run = play(served.with_settings("seats", qwen_cpu_seats=3), "calibrate.py")
    assert run.returncode == 1
    assert "deploy first" in run.stderr
    said = play(served.with_settings("seats", qwen_cpu_seats=3), "plan.py").stderr
    told = " ".join(line.rpartition("] ")[-1].strip() for line in said.splitlines())
    assert "no longer holds (max-num-seqs" in told


def test_the_former_plan_and_its_lack_of_a_measurement_come_back_on_request(served: Served) -> None:
    host = served.host
    run = play(served.inventory, "rollback.py")
    assert run.returncode == 0, run.stderr
    assert host.ssh_run(f"ls {RECORD}", check=False).stdout == ""
    assert ask(host)[0] == 200

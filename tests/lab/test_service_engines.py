"""Several engines on one host: what `systemctl` and a deploy do with them."""

from __future__ import annotations

import pytest

from tests import lab
from tests.lab.deploying import ask
from tests.lab.serving import QUICK, Served, show, wait, wait_for_another_start

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

SETTINGS = {**QUICK, "qwen_cpu_engines": 2}
FIRST, SECOND = "qwen-engine@cpu.service", "qwen-engine@cpu2.service"


def pids(host: lab.Host) -> tuple[str, str]:
    """Main processes of both engines; 0 for one that is down."""
    return show(host, "MainPID", FIRST), show(host, "MainPID", SECOND)


def test_each_engine_answers_on_its_port(served: Served) -> None:
    assert [ask(served.host, port=port)[0] for port in (8000, 8001)] == [200, 200]


def test_a_plain_deploy_restarts_neither(served: Served) -> None:
    before = pids(served.host)
    run = served.redeploy()
    assert (run.code, run.changed) == (0, ()), run.text
    assert pids(served.host) == before


def test_a_killed_engine_comes_back_and_leaves_the_other_alone(served: Served) -> None:
    first, second = pids(served.host)
    served.host.ssh_run(f"kill -9 {second}")
    assert ask(served.host)[0] == 200
    wait_for_another_start(served.host, second, SECOND)
    assert show(served.host, "MainPID", FIRST) == first
    assert ask(served.host, port=8001)[0] == 200


def test_stop_and_start_act_on_both_and_wait_for_them(served: Served) -> None:
    host = served.host
    host.ssh_run("systemctl stop qwen")
    assert pids(host) == ("0", "0")
    host.ssh_run("systemctl start qwen", timeout=600)
    assert [ask(host, port=port)[0] for port in (8000, 8001)] == [200, 200]
    before = pids(host)
    host.ssh_run("systemctl restart qwen", timeout=600)
    assert not set(before) & set(pids(host))
    assert [ask(host, port=port)[0] for port in (8000, 8001)] == [200, 200]


@pytest.mark.parametrize("umbrella", ["stopped", "running"])
def test_a_start_names_the_engine_that_does_not_come_up_and_the_other_serves(served: Served, umbrella: str) -> None:
    host, gate = served.host, "/etc/qwen/engines/cpu2.gate.json"
    host.ssh_run(f"mv {gate} /root/")
    try:
        if umbrella == "stopped":
            host.ssh_run("systemctl stop qwen")
        else:
            host.ssh_run(f"kill -9 {pids(host)[1]}")
            wait(host, "systemctl is-failed --quiet qwen", 90)
        assert host.ssh_run("systemctl start qwen", check=False, timeout=600).returncode != 0
        said = host.ssh_run("systemctl status --no-pager qwen; journalctl --no-pager -n 20 -u qwen", check=False).stdout
        assert "engine cpu2 is failed: see 'systemctl status qwen-engine@cpu2.service'" in said
        assert "engine cpu is" not in said.rsplit("Starting", 1)[-1]
        assert ask(host)[0] == 200
    finally:
        host.ssh_run(f"mv /root/cpu2.gate.json {gate}")
    host.ssh_run("systemctl start qwen", timeout=600)
    host.ssh_run("systemctl is-active qwen")
    assert ask(host, port=8001)[0] == 200


def test_an_engine_that_is_no_longer_planned_is_cleaned_up_and_the_other_not_restarted(served: Served) -> None:
    host, (first, _) = served.host, pids(served.host)
    run = served.redeploy(qwen_cpu_engines=1)
    assert run.code == 0, run.text
    assert show(host, "MainPID", FIRST) == first
    assert host.ssh_run(f"systemctl is-active {SECOND}", check=False).stdout.strip() == "inactive"
    assert host.ssh_run("ls /etc/qwen/engines | grep cpu2", check=False).stdout == ""
    with pytest.raises(OSError, match=r"refused|reset"):
        ask(host, port=8001)


def test_an_engine_that_is_added_starts_beside_the_other(served: Served) -> None:
    host, first = served.host, show(served.host, "MainPID", FIRST)
    run = served.redeploy(qwen_cpu_engines=2)
    assert run.code == 0, run.text
    assert show(host, "MainPID", FIRST) == first
    assert ask(host, port=8001)[0] == 200

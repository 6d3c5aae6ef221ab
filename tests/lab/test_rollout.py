"""Hosts take turns, with real vLLM: the one after a failed one serves on with what it had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import lab
from tests.lab.deploying import TOO_LONG, ask, deploy, inventory, sources

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

STATE = "systemctl show -p MainPID --value qwen-engine@cpu; cat /etc/qwen/plan.json /etc/qwen/engines/cpu.yaml"


def test_a_host_after_a_failed_one_is_left_as_it_serves(tmp_path: Path) -> None:
    with lab.hosts(2, release="bookworm") as hosts, sources(hosts.gateway, tmp_path) as origin:
        first, second = hosts
        data = {host.name: {**host.pyinfra_data("admin"), **origin.settings(qwen_serial=1)} for host in hosts}
        run = deploy(inventory(tmp_path, data))
        assert run.code == 0, run.text
        before = second.ssh_run(STATE).stdout

        data[first.name]["qwen_cpu_context"] = TOO_LONG
        data[second.name]["qwen_cpu_context"] = 1024
        run = deploy(inventory(tmp_path, data))
        assert run.code == 1
        assert f"[{second.name}] left as it was: {first.name} failed. What served here serves on" in run.text
        assert second.ssh_run(STATE).stdout == before
        assert [ask(host)[0] for host in hosts] == [200, 200]

        del data[first.name]["qwen_cpu_context"]
        run = deploy(inventory(tmp_path, data))
        assert run.code == 0, run.text
        assert second.ssh_run(STATE).stdout != before
        assert ask(second)[0] == 200

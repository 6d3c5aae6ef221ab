"""From a bare host to an answered request, and what a person does with the served host afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import lab
from tests.lab.deploying import API_KEY, ask, deploy
from tests.lab.serving import Served, show

pytestmark = [pytest.mark.lab, pytest.mark.engine]


def serving(host: lab.Host) -> bool:
    """Whether systemd holds service and engine for active; waits for a start in progress."""
    host.ssh_run("systemctl start qwen", check=False, timeout=600)
    return host.ssh_run("systemctl is-active qwen qwen-engine@cpu", check=False).stdout.split() == ["active"] * 2


def test_a_bare_host_ends_up_answering_from_outside(served: Served) -> None:
    status, answer = ask(served.host)
    assert status == 200
    assert answer["choices"][0]["message"]["content"]
    assert answer["system_fingerprint"].startswith("vllm-0.32.0")


def test_systemd_holds_it_for_active_and_starts_it_at_boot(served: Served) -> None:
    assert serving(served.host)
    assert served.host.ssh_run("systemctl is-enabled qwen").stdout.strip() == "enabled"


def test_a_request_without_the_key_is_refused(served: Served) -> None:
    assert ask(served.host, key=None)[0] == 401
    assert ask(served.host, key="another")[0] == 401


def test_the_key_is_on_no_command_line_and_in_no_readable_file(served: Served) -> None:
    host = served.host
    processes = host.ssh_run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert "qwen/engines/cpu.yaml" in processes
    assert API_KEY not in processes
    found = host.ssh_run(f"grep -rlF {API_KEY} /etc /usr/local /run /var/lib/qwen /var/log /tmp", check=False)
    readable = [path for path in found.stdout.split() if "credentials" not in path]
    assert readable == ["/etc/qwen/secrets/api_key"]
    assert host.ssh_run("stat -c '%a %U' /etc/qwen/secrets/api_key /etc/qwen/secrets").stdout.split() == [
        *("600", "root"),
        *("700", "root"),
    ]
    assert served.first is not None
    assert API_KEY not in served.first.text


def test_the_engine_runs_as_the_service_user_without_rights(served: Served) -> None:
    pid = show(served.host, "MainPID")
    status = served.host.ssh_run(f"stat -c %U /proc/{pid}; grep NoNewPrivs /proc/{pid}/status").stdout.split()
    assert status == ["qwen", "NoNewPrivs:", "1"]


def test_a_second_run_changes_nothing_and_restarts_nothing(served: Served) -> None:
    before = show(served.host, "MainPID")
    again = deploy(served.inventory)
    assert again.code == 0, again.text
    assert again.changed == ()
    assert "Roll out | Serve as asked" in again.unchanged
    assert show(served.host, "MainPID") == before


def test_it_works_from_another_working_directory(served: Served, tmp_path: Path) -> None:
    again = deploy(served.inventory, cwd=tmp_path)
    assert again.code == 0, again.text
    assert again.changed == ()


def test_a_dry_run_of_a_served_host_sees_no_change(served: Served) -> None:
    dry = deploy(served.inventory, dry=True)
    assert dry.code == 0, dry.text
    assert dry.planned == ()


def test_stop_start_and_restart_act_on_the_engine(served: Served) -> None:
    host = served.host
    host.ssh_run("systemctl stop qwen")
    host.ssh_run("systemctl stop qwen-engine@cpu")  # returns when it is down
    with pytest.raises(OSError, match=r"refused|reset"):
        ask(host)
    host.ssh_run("systemctl start qwen", timeout=600)
    first = show(host, "MainPID")
    assert ask(host)[0] == 200
    host.ssh_run("systemctl restart qwen", timeout=600)
    assert show(host, "MainPID") != first
    assert ask(host)[0] == 200
    assert "answering on" in host.ssh_run("systemctl status --no-pager qwen-engine@cpu").stdout


def test_a_reboot_brings_it_back(served: Served) -> None:
    served.host.reboot()
    assert serving(served.host)
    assert ask(served.host)[0] == 200
    assert deploy(served.inventory).changed == ()


def test_a_changed_setting_restarts_the_engine_and_an_old_engine_is_removed(served: Served) -> None:
    host, before = served.host, show(served.host, "MainPID")
    host.ssh_run("cp /etc/qwen/engines/cpu.yaml /etc/qwen/engines/old.yaml; touch /etc/qwen/engines/old.env")
    run = served.redeploy(qwen_port=8001)
    assert run.code == 0, run.text
    assert run.changed == ("Roll out | Serve as asked",)
    assert show(host, "MainPID") != before
    assert ask(host, port=8001)[0] == 200
    assert host.ssh_run("ls /etc/qwen/engines").stdout.split() == ["cpu.env", "cpu.gate.json", "cpu.yaml"]

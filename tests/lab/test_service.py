"""A served host over time, with real vLLM and systemd: what its units allow, how faults are told, how it comes back.

Refusals are cheap, starts of the engine are not: every refusal is tested on a stopped engine, and one start ends them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import lab
from tests.lab.deploying import API_KEY, ROOT, ask, deploy, inventory, sources

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

UNIT = "qwen-engine@cpu.service"
QUICK = {
    "qwen_liveness_interval_s": 5,
    "qwen_liveness_limit_s": 40,
    "qwen_gate_wait_s": 2,
    # two cores shared with other work: rates say nothing here
    "qwen_verify_limit_percent": 95.0,
}


@dataclass(frozen=True)
class Served:
    """A deployed host and its inventory file."""

    host: lab.Host
    inventory: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A host that serves, with short patience."""
    directory = tmp_path_factory.mktemp("service")
    with lab.hosts(1, release="bookworm") as hosts, sources(hosts.gateway, directory) as origin:
        host = hosts[0]
        file = inventory(directory, {host.name: {**host.pyinfra_data("admin"), **origin.settings(**QUICK)}})
        run = deploy(file)
        assert run.code == 0, run.text
        yield Served(host, file)


def show(host: lab.Host, field: str) -> str:
    """One property of the engine's unit."""
    return host.ssh_run(f"systemctl show -p {field} --value {UNIT}").stdout.strip()


def play(served: Served, name: str) -> subprocess.CompletedProcess[str]:
    """`pyinfra INVENTORY plays/NAME -y`."""
    pyinfra = Path(sys.executable).with_name("pyinfra")
    command = [str(pyinfra), str(served.inventory), str(ROOT / "plays" / name), "-y"]
    environment = {**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)


def test_the_sandboxed_engine_answers_and_is_ok_in_systemds_eyes(served: Served) -> None:
    assert ask(served.host)[0] == 200
    said = served.host.ssh_run(f"systemd-analyze security --no-pager --threshold=20 {UNIT}").stdout
    assert " OK " in said.splitlines()[-1]
    status = served.host.ssh_run(f"grep -E 'NoNewPrivs|CapBnd|Seccomp:' /proc/{show(served.host, 'MainPID')}/status")
    assert status.stdout.split() == ["CapBnd:", "0" * 16, "NoNewPrivs:", "1", "Seccomp:", "2"]


def request(host: lab.Host, method: str, path: str, key: str | None) -> tuple[int, bytes]:
    """Status and body of one request from outside the host."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = b"{}" if method in ("POST", "PUT", "PATCH") else None
    sent = urllib.request.Request(f"http://{host.address}:8000{path}", body, headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sent, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def test_no_route_but_health_answers_without_the_key(served: Served) -> None:
    status, page = request(served.host, "GET", "/openapi.json", API_KEY)
    assert status == 200
    routes = [
        (method.upper(), path.replace("{", "").replace("}", ""))
        for path, methods in json.loads(page)["paths"].items()
        for method in methods
    ]
    routes += [("GET", path) for path in ("/docs", "/redoc", "/openapi.json", "/metrics")]
    assert len(routes) > 15
    open_ones = [path for method, path in routes if request(served.host, method, path, None)[0] != 401]
    assert open_ones == ["/health"]


def test_verification_passes_and_its_result_lies_on_the_host(served: Served) -> None:
    run = play(served, "verify.py")
    assert run.returncode == 0, run.stderr
    assert "mechanics judged" in run.stderr
    result = json.loads(served.host.ssh_run("cat /var/lib/qwenlab/verify/cpu.json").stdout)
    assert result["ok"] is True
    assert result["release"].startswith("cpu-0.32.0-")
    assert {row["name"] for row in result["checks"] if row["ok"]} >= {"stream", "schema", "needle", "prefix", "rate"}


def test_an_engine_that_generates_nothing_is_restarted(served: Served) -> None:
    host = served.host
    before = int(show(host, "NRestarts"))
    host.ssh_run("pkill -STOP -f '^VLLM::EngineCore'")
    assert request(host, "GET", "/health", None)[0] == 200
    host.ssh_run(
        f"timeout 300 sh -c 'until [ $(systemctl show -p NRestarts --value {UNIT}) -gt {before} ]; do sleep 1; done'",
        timeout=320,
    )
    assert "no token was generated since the last look" in host.journal(UNIT)
    assert "watchdog" in host.journal(UNIT).lower()


def test_a_killed_engine_comes_back(served: Served) -> None:
    host = served.host
    host.ssh_run(f"timeout 600 systemctl start {UNIT}", timeout=620)
    before = show(host, "MainPID")
    host.ssh_run(f"kill -9 {before}")
    host.ssh_run(
        f"timeout 600 sh -c 'until systemctl is-active --quiet {UNIT} && "
        f"[ $(systemctl show -p MainPID --value {UNIT}) != {before} ]; do sleep 1; done'",
        timeout=620,
    )
    assert ask(host)[0] == 200


@contextmanager
def spoilt(host: lab.Host, spoil: str, mend: str) -> Iterator[None]:
    """The host with one thing wrong."""
    host.ssh_run(spoil)
    try:
        yield
    finally:
        host.ssh_run(mend)


@pytest.fixture(scope="module")
def stopped(served: Served) -> Iterator[lab.Host]:
    """The host with its engine stopped; at the end it must serve again with nothing lost."""
    host = served.host
    host.ssh_run(f"systemctl stop qwen {UNIT}")
    yield host
    host.ssh_run("systemctl start qwen", timeout=900)
    assert ask(host)[0] == 200


GATE = "/etc/qwen/engines/cpu.gate.json"
CARD = "GPU-00000000-0000-0000-0000-000000000001"
LISTEN = "python3 -c 'import socket,time; s=socket.create_server((\"0.0.0.0\", 8000)); time.sleep(600)'"


@pytest.mark.parametrize(
    ("spoil", "mend", "code", "words"),
    [
        (
            "cp -a /etc/qwen/plan.json /root/; truncate -s 40 /etc/qwen/plan.json",
            "mv /root/plan.json /etc/qwen/plan.json",
            78,
            "plan.json is missing or damaged: deploy again",
        ),
        ("chmod 644 /etc/qwen/secrets/api_key", "chmod 600 /etc/qwen/secrets/api_key", 78, "can be read by others"),
        (
            "mv /opt/qwen/current/release.json /root/",
            "mv /root/release.json /opt/qwen/current/",
            78,
            "is not complete: deploy again",
        ),
        (f"cp -a {GATE} /root/; truncate -s 20 {GATE}", f"mv /root/cpu.gate.json {GATE}", 78, "missing or damaged"),
        (
            f'cp -a {GATE} /root/; sed -i \'s/"cards": \\[\\]/"cards": ["{CARD}"]/\' {GATE}',
            f"mv /root/cpu.gate.json {GATE}",
            78,
            "nvidia-smi is missing",
        ),
        ("mount -o remount,size=1m /dev/shm", "mount -o remount,size=50% /dev/shm", 78, "mount -o remount,size="),
        (
            "mount -t tmpfs -o size=1m tmpfs /var/lib/qwen",
            "umount /var/lib/qwen",
            75,
            "the disk below /var/lib/qwen is full",
        ),
        (f"systemd-run --unit=squatter {LISTEN}", "systemctl stop squatter", 75, "port 8000 is taken (held by process"),
    ],
    ids=["plan", "secret", "release", "gate-file", "card", "shm", "disk", "port"],
)
def test_a_start_is_refused_with_words(stopped: lab.Host, spoil: str, mend: str, code: int, words: str) -> None:
    with spoilt(stopped, spoil, mend):
        assert stopped.ssh_run(f"systemctl start {UNIT}", check=False, timeout=120).returncode != 0
        status = stopped.ssh_run(f"systemctl status --no-pager {UNIT}", check=False).stdout
        assert show(stopped, "ExecMainStatus") == str(code)
        assert words in status
        waits_for_another_try = "auto-restart" in status
        assert waits_for_another_try == (code == 75)
        stopped.ssh_run(f"systemctl stop {UNIT}; systemctl reset-failed {UNIT}", check=False)


def test_a_deploy_whose_engine_does_not_start_brings_the_former_plan_back(served: Served) -> None:
    host = served.host
    good = host.get("/etc/qwen/plan.json")
    text = served.inventory.read_text().replace("'qwen_engine':", "'qwen_cpu_context': 10000000, 'qwen_engine':")
    bad = served.inventory.with_name("bad.py")
    bad.write_text(text)
    run = deploy(bad)
    assert run.code == 1
    assert "the engine did not start: the lines above say why" in run.text
    assert "rolled back: release cpu-0.32.0-" in run.text
    assert host.get("/etc/qwen/plan.json") == good
    assert ask(host)[0] == 200


def test_a_redeploy_after_all_this_changes_nothing_and_status_is_content(served: Served) -> None:
    run = deploy(served.inventory)
    assert (run.code, run.changed) == (0, ()), run.text
    status = play(served, "status.py")
    assert status.returncode == 0, status.stderr
    assert "serving: release cpu-0.32.0-" in status.stderr
    assert "drift" not in status.stderr

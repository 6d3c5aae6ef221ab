"""A lab host that serves for the length of a test module, and what the tests of the service do with it."""

from __future__ import annotations

import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.deploying import Run, Sources, deploy, inventory, play, sources
from tests.lab.host import Host, HostSpec
from tests.lab.lab import hosts
from tests.sim.inventory import load
from tests.sim.lab_host import SimulatedGpus

UNIT = "qwen-engine@cpu.service"
# each asked for itself: of several units `is-active` wants only one
ANSWERS = f"systemctl is-active --quiet qwen && systemctl is-active --quiet {UNIT}"
GATE = "/etc/qwen/engines/cpu.gate.json"
QUICK = {
    # short patience, so that tests are short
    "qwen_liveness_interval_s": 5,
    "qwen_liveness_limit_s": 40,
    "qwen_gate_wait_s": 2,
    # cores shared with other work: rates say nothing here
    "qwen_verify_limit_percent": 95.0,
}


@dataclass(frozen=True)
class Served:
    """A deployed host, what it was deployed from and with."""

    host: Host
    sources: Sources
    directory: Path
    inventory: Path
    settings: dict[str, Any]

    def redeploy(self, **more: Any) -> Run:
        """Deploy again, with other settings where given."""
        data = {**self.host.pyinfra_data("admin"), **self.sources.settings(**{**self.settings, **more})}
        return deploy(inventory(self.directory, {self.host.name: data}, "again"))

    def play(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        """`pyinfra INVENTORY plays/NAME -y`."""
        return play(self.inventory, name, *options)


@contextmanager
def served_host(directory: Path, spec: HostSpec | None = None, **settings: Any) -> Iterator[Served]:
    """A Debian 12 host after its first deploy, with short patience."""
    with hosts([spec or HostSpec(release="bookworm")]) as lab, sources(lab.gateway, directory) as origin:
        host = lab[0]
        wanted = {**QUICK, **settings}
        file = inventory(directory, {host.name: {**host.pyinfra_data("admin"), **origin.settings(**wanted)}})
        run = deploy(file)
        if run.code:
            raise AssertionError(run.text)
        yield Served(host, origin, directory, file, wanted)


def show(host: Host, field: str, unit: str = UNIT) -> str:
    """One property of a unit."""
    return host.ssh_run(f"systemctl show -p {field} --value {unit}").stdout.strip()


def wait(host: Host, condition: str, within: int = 300) -> None:
    """Wait on the host until a shell condition holds. Raises LabError when it does not in time [seconds]."""
    loop = shlex.quote(f"until {condition}; do sleep 0.5; done")
    host.ssh_run(f"timeout {within} sh -c {loop}", timeout=within + 30)


def wait_for_another_start(host: Host, former: str, unit: str = UNIT) -> None:
    """Wait until the unit answers again, by itself, with another main process than `former`."""
    other = f"[ $(systemctl show -p MainPID --value {unit}) != {former} ]"
    wait(host, f"{other} && systemctl is-active --quiet {unit}")


def forget_restarts(host: Host, unit: str = UNIT) -> None:
    """As if it had run for a day: no restart is remembered, by systemd or by the gate."""
    name = unit.removeprefix("qwen-engine@").removesuffix(".service")
    host.ssh_run(f"systemctl reset-failed {unit} 2>/dev/null; rm -f /run/qwen/{name}.restarts", check=False)


def files(host: Host) -> str:
    """Everything that the service stands on, by digest: plan, engine files, key, units, release, checkpoint."""
    return host.ssh_run(
        "find /etc/qwen /etc/systemd/system/qwen* /srv/qwen/models -type f | sort | xargs sha256sum;"
        "readlink /opt/qwen/current; cat /opt/qwen/current/release.json | sha256sum"
    ).stdout


@contextmanager
def planned_card(host: Host) -> Iterator[SimulatedGpus]:
    """For the block the host has two simulated cards, 20 GiB of the first of which its engine is to have."""
    machine = load("2x3090-nvlink")
    cards, uuid = SimulatedGpus(host), machine.uuid(0)
    cards.install(machine)
    sets = (f's/"cards": \\[\\]/"cards": ["{uuid}"]/', f's/"need_mib": {{}}/"need_mib": {{"{uuid}": 20480}}/')
    host.ssh_run(f"cp -a {GATE} /root/; sed -i '{'; '.join(sets)}' {GATE}; grep {uuid} {GATE} | grep 20480")
    try:
        yield cards
    finally:
        host.ssh_run(f"mv /root/cpu.gate.json {GATE}")
        cards.remove()


def request(host: Host, method: str, path: str, key: str | None, port: int = 8000) -> tuple[int, bytes]:
    """Status and body of one request from outside the host."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = b"{}" if method in ("POST", "PUT", "PATCH") else None
    sent = urllib.request.Request(f"http://{host.address}:{port}{path}", body, headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sent, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def engine_pids(host: Host, pattern: str) -> list[str]:
    """Processes whose title matches: vLLM names its own (`VLLM::EngineCore`, `VLLM::Worker_TP1`)."""
    return host.ssh_run(f"pgrep -f {shlex.quote(pattern)}", check=False).stdout.split()

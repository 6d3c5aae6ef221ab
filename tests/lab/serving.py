"""A lab host that serves for the length of a test module, and what the tests of the service do with it."""

from __future__ import annotations

import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
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
# short patience, so that tests are short
QUICK: dict[str, Any] = {
    "qwen_liveness_interval_s": 5,
    "qwen_liveness_limit_s": 40,
    "qwen_gate_wait_s": 2,
    # cores are shared with other work: rates say nothing here
    "qwen_verify_limit_percent": 95.0,
}


@dataclass(frozen=True)
class Served:
    """A host, and what is deployed to it.

    Attributes:
        inventory: the file that it is deployed with.
        settings: those beside the ones that `sources` gives.
        first: the deploy that made it serve; None where nothing was deployed.
    """

    host: Host
    sources: Sources
    inventory: Path
    settings: Mapping[str, Any]
    first: Run | None

    def with_settings(self, name: str, **more: Any) -> Path:
        """Another inventory file for the same host, with further settings."""
        return host_inventory(self.inventory.parent, self.host, self.sources, name, **{**self.settings, **more})

    def redeploy(self, **more: Any) -> Run:
        """Deploy again, with other settings where given."""
        return deploy(self.with_settings("again", **more))

    def play(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        """`pyinfra INVENTORY plays/NAME -y`."""
        return play(self.inventory, name, *options)


def host_inventory(directory: Path, host: Host, origin: Sources, name: str = "lab", **settings: Any) -> Path:
    """An inventory file for one host that a user with sudo deploys."""
    return inventory(directory, {host.name: {**host.pyinfra_data("admin"), **origin.settings(**settings)}}, name)


@contextmanager
def served_host(
    directory: Path, spec: HostSpec | None = None, *, deployed: bool = True, **settings: Any
) -> Iterator[Served]:
    """A lab host, Debian 12 unless `spec` says otherwise, that stays for the block; AssertionError if it cannot serve.

    Args:
        directory: for the checkpoint and the inventory files.
        spec: another host.
        deployed: whether it serves when the block begins.
        settings: beside those of the tiny checkpoint.
    """
    with hosts([spec or HostSpec(release="bookworm")]) as lab, sources(lab.gateway, directory) as origin:
        file = host_inventory(directory, lab[0], origin, **settings)
        first = deploy(file) if deployed else None
        if first is not None and first.code:
            raise AssertionError(first.text)
        yield Served(lab[0], origin, file, settings, first)


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

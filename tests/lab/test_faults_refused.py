"""Faults that a start must not run into: refused with words in `systemctl status`, and mended by what the words say.

Refusals are cheap, starts of the engine are not: every refusal is tested on a stopped engine, and one start ends them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests import lab
from tests.lab.deploying import ask
from tests.lab.serving import GATE, QUICK, UNIT, Served, forget_restarts, planned_card, show
from tests.sim.faults import Fault as CardFault
from tests.sim.inventory import Process
from tests.sim.lab_host import SimulatedGpus

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

SETTINGS = QUICK
NEVER, LATER = 78, 75  # restarting cannot mend it; it may
LISTEN = "python3 -c 'import socket,time; s=socket.create_server((\"0.0.0.0\", 8000)); time.sleep(600)'"
KEY = "/etc/qwen/secrets/api_key"
PATCHED = "$(find /opt/qwen/current/ -path '*/vllm/entrypoints/serve/middleware/authenticate.py')"
SHARD = "$(find /srv/qwen/models -name 'model-00001-*.safetensors')"


@pytest.fixture(scope="module")
def stopped(served: Served) -> Iterator[lab.Host]:
    """The host with its engine stopped; at the end it must serve again with nothing lost."""
    host = served.host
    host.ssh_run(f"systemctl stop qwen {UNIT}")
    yield host
    forget_restarts(host)
    host.ssh_run("systemctl start qwen", timeout=900)
    assert ask(host)[0] == 200


@contextmanager
def spoilt(host: lab.Host, spoil: str, mend: str) -> Iterator[None]:
    """The host with one thing wrong."""
    host.ssh_run(spoil)
    try:
        yield
    finally:
        host.ssh_run(mend)


def refused(host: lab.Host, code: int, words: str) -> None:
    """A start is refused with this code and these words; systemd tries again when that may help, and only then."""
    try:
        assert host.ssh_run(f"systemctl start {UNIT}", check=False, timeout=120).returncode != 0
        status = host.ssh_run(f"systemctl status --no-pager --lines=30 {UNIT}", check=False).stdout
        assert (show(host, "ExecMainStatus"), words in status) == (str(code), True), status
        assert ("auto-restart" in status) == (code == LATER), status
    finally:
        host.ssh_run(f"systemctl stop {UNIT}", check=False)
        forget_restarts(host)


@dataclass(frozen=True)
class Fault:
    """What is wrong with the host, how it is told and mended."""

    spoil: str
    mend: str
    code: int
    words: str


def cut_off(path: str, words: str) -> Fault:
    """A file that lost its second half."""
    kept = f"/root/{path.rsplit('/', 1)[-1]}"
    half = f"truncate -s $(($(stat -c %s {path}) / 2)) {path}"
    return Fault(f"cp -a {path} {kept}; {half}", f"mv {kept} {path}", NEVER, words)


def gone(path: str, words: str) -> Fault:
    """A file that is not there."""
    return Fault(f"mv {path} /root/gone", f"mv /root/gone {path}", NEVER, words)


FAULTS = {
    "plan-cut-off": cut_off("/etc/qwen/plan.json", "plan.json is missing or damaged: deploy again"),
    "gate-file-cut-off": cut_off(GATE, "cpu.gate.json is missing or damaged: deploy again"),
    "settings-cut-off": cut_off("/etc/qwen/engines/cpu.yaml", "cpu.yaml is missing or cut off: deploy again"),
    "settings-are-no-yaml": Fault(
        "cp -a /etc/qwen/engines/cpu.yaml /root/; sed -i '1s/^/- [/' /etc/qwen/engines/cpu.yaml",
        "mv /root/cpu.yaml /etc/qwen/engines/cpu.yaml",
        NEVER,
        "cpu.yaml cannot be read",
    ),
    "variables-gone": gone("/etc/qwen/engines/cpu.env", "cpu.env is missing or cut off: deploy again"),
    "key-readable-by-others": Fault(f"chmod 644 {KEY}", f"chmod 600 {KEY}", NEVER, "can be read by others"),
    "key-of-another-user": Fault(f"chown qwen {KEY}", f"chown root {KEY}", NEVER, "can be read by others"),
    "key-empty": Fault(
        f"cp -a {KEY} /root/; : > {KEY}", f"mv /root/api_key {KEY}", NEVER, "api_key is empty or too short"
    ),
    "key-gone": gone(KEY, "api_key is missing: deploy again"),
    "patched-file-edited": Fault(
        f"cp -a {PATCHED} /root/; echo 'pass' >> {PATCHED}",
        f"mv /root/authenticate.py {PATCHED}",
        NEVER,
        "is not as the release was built",
    ),
    "release-not-complete": gone("/opt/qwen/current/release.json", "is not complete: deploy again"),
    "model-file-gone": Fault(
        f"dirname {SHARD} > /root/place; mv {SHARD} /root/",
        "mv /root/model-00001-*.safetensors $(cat /root/place)/",
        NEVER,
        ".safetensors is missing or has another size",
    ),
    "model-file-cut-off": Fault(
        f"dirname {SHARD} > /root/place; cp -a {SHARD} /root/; truncate -s 1000 {SHARD}",
        "mv /root/model-00001-*.safetensors $(cat /root/place)/",
        NEVER,
        ".safetensors is missing or has another size",
    ),
    "no-driver": Fault(
        f'cp -a {GATE} /root/; sed -i \'s/"cards": \\[\\]/"cards": ["GPU-1"]/\' {GATE}',
        f"mv /root/cpu.gate.json {GATE}",
        NEVER,
        "nvidia-smi is missing",
    ),
    "shared-memory-too-small": Fault(
        "mount -o remount,size=1m /dev/shm",
        "mount -o remount,size=50% /dev/shm",
        NEVER,
        "mount -o remount,size=",
    ),
    "shared-memory-full": Fault(
        "mount -o remount,size=80m /dev/shm; head -c 60M /dev/zero > /dev/shm/fill",
        "rm /dev/shm/fill; mount -o remount,size=50% /dev/shm",
        LATER,
        "MiB free of 80 and 64 are needed: see ls -l /dev/shm",
    ),
    "disk-of-the-cache-full": Fault(
        "mount -t tmpfs -o size=1m tmpfs /var/lib/qwen",
        "umount /var/lib/qwen",
        LATER,
        "the disk below /var/lib/qwen is full",
    ),
    "port-taken": Fault(
        f"systemd-run --unit=squatter {LISTEN}; timeout 20 sh -c 'until ss -Hltn | grep -q :8000; do sleep 0.1; done'",
        "systemctl stop squatter",
        LATER,
        "port 8000 is taken (held by process",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_start_is_refused_with_words(stopped: lab.Host, name: str) -> None:
    fault = FAULTS[name]
    with spoilt(stopped, fault.spoil, fault.mend):
        refused(stopped, fault.code, fault.words)


def test_a_release_without_its_interpreter_is_refused_with_words(stopped: lab.Host) -> None:
    """The engine's own process, which tells every other reason, cannot run."""
    python = "/opt/qwen/current/venv/bin/python"
    with spoilt(stopped, f"mv {python} {python}.gone", f"mv {python}.gone {python}"):
        refused(stopped, 203, "refused: the engine release /opt/qwen/current is not complete: deploy again")


@pytest.fixture(scope="module")
def cards(stopped: lab.Host) -> Iterator[SimulatedGpus]:
    """Two simulated cards, one of which the engine is to have."""
    with planned_card(stopped) as simulated:
        yield simulated


CARD_FAULTS = {
    "card-gone": (CardFault.absent(0), NEVER, "is not there; if it was taken out, deploy again"),
    "card-off-the-bus": (CardFault.lost(0), NEVER, "fell off the bus"),
    "card-held": (CardFault.processes(0, Process(pid=1, name="x", mib=9000)), LATER, "20480: held by process 1 ("),
    "library-of-another-version": (CardFault.version_mismatch(), NEVER, "than the library belongs to: reboot"),
    "library-gone": (CardFault.missing_nvml(), NEVER, "the NVIDIA driver is not loaded"),
}


@pytest.mark.parametrize("name", CARD_FAULTS)
def test_a_start_without_its_card_is_refused_with_words(cards: SimulatedGpus, stopped: lab.Host, name: str) -> None:
    fault, code, words = CARD_FAULTS[name]
    cards.set_faults(fault)
    try:
        refused(stopped, code, words)
    finally:
        cards.set_faults(CardFault())


def test_a_module_of_another_version_is_refused_with_words(cards: SimulatedGpus, stopped: lab.Host) -> None:
    cards.load_module("570.133.07")
    refused(stopped, NEVER, "reboot")

"""What other tests rely on: lab hosts are real, apart from each other, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import lab
from tests.lab.deploying import ROOT
from tests.lab.host import HostSpec
from tests.lab.network import LabNetwork
from tests.lab.registry import STATE, LabRecord, Process, records, registry_lock
from tests.lab.removal import remove_leftovers

pytestmark = pytest.mark.lab

# Boots one host, says its lab's number and waits for a signal.
HOLDER = """
import signal
from tests import lab
with lab.hosts(1, release="trixie") as hosts:
    print(hosts.record.number, flush=True)
    signal.pause()
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[lab.Lab]:
    """A Debian 13 host with a small disk, and a Debian 12 host with little memory and no Python."""
    small = HostSpec(release="trixie", disk_mib=300)
    plain = HostSpec(release="bookworm", memory_mib=700, python=False)
    with lab.hosts([small, plain]) as hosts:
        yield hosts


def traces(number: int) -> dict[str, list[str]]:
    """What of a lab is left on this machine, by kind."""
    network = LabNetwork(number)

    def lines(*command: str) -> list[str]:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    found = {
        "links": [line for line in lines("ip", "-brief", "link") if line.startswith(network.bridge)],
        "namespaces": [line for line in lines("ip", "netns", "list") if line.startswith(f"{network.bridge}-")],
        "tables": [line for line in lines("nft", "list", "tables") if line.split()[-1] == network.table],
        "mounts": [line for line in lines("cat", "/proc/self/mountinfo") if f"/running/{number}/" in line],
        "loops": [line for line in lines("losetup", "--list", "--noheadings") if f"/running/{number}/" in line],
        "groups": [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/qwenlab-lab-{number}-*")],
        "processes": [line for line in lines("ps", "-ww", "-eo", "args") if f"--machine={network.bridge}-" in line],
        "records": [str(path) for path in STATE.glob(f"{number}.json")],
    }
    return {kind: what for kind, what in found.items() if what}


@contextmanager
def holder() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process of its own that holds a lab, and the lab's number."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_systemd_is_pid_1_and_has_started_everything(pair: lab.Lab) -> None:
    for host, release in zip(pair, ("trixie", "bookworm"), strict=True):
        assert host.ssh_run("cat /proc/1/comm").stdout.strip() == "systemd"
        assert host.ssh_run("systemctl is-system-running").stdout.strip() == "running"
        assert f"VERSION_CODENAME={release}" in host.ssh_run("cat /etc/os-release").stdout


def test_hosts_reach_each_other_by_name_and_the_package_archive(pair: lab.Lab) -> None:
    first, second = pair
    for host, other in ((first, second), (second, first)):
        assert host.ssh_run(f"bash -c 'exec 3<>/dev/tcp/{other.name}/22; head -c 7 <&3'").stdout == "SSH-2.0"
        assert host.ssh_run("apt-get update").returncode == 0


def test_logins_have_the_rights_that_tests_count_on(pair: lab.Lab) -> None:
    assert pair[0].ssh_run("sudo -n id -u", user="admin").stdout.strip() == "0"
    assert pair[0].ssh_run("sudo -n id -u", user="guest", check=False).returncode != 0


def test_a_small_disk_is_really_full(pair: lab.Lab) -> None:
    host = pair[0]
    full = host.ssh_run("head -c 400M /dev/zero > /root/big", check=False)
    assert full.returncode != 0
    assert "No space left on device" in full.stderr
    host.ssh_run("rm /root/big && head -c 1M /dev/zero > /root/small")


def test_a_memory_limit_is_shown_and_kept(pair: lab.Lab) -> None:
    host = pair[1]
    assert host.ssh_run("grep MemTotal /proc/meminfo").stdout.split()[1] == str(700 << 10)
    killed = host.ssh_run("head -c 900M /dev/zero | tail -c 900M | wc -c", check=False)
    assert killed.stdout.strip() != str(900 << 20)


def test_a_host_may_lack_python(pair: lab.Lab) -> None:
    assert pair[0].ssh_run("python3 --version").returncode == 0
    assert pair[1].ssh_run("command -v python3", check=False).returncode != 0


def test_a_cut_network_lets_only_ssh_from_this_machine_through(pair: lab.Lab) -> None:
    host = pair[0]
    outside = "bash -c 'exec 3<>/dev/tcp/deb.debian.org/80'"
    assert host.ssh_run(f"timeout 20 {outside}").returncode == 0
    host.cut_network()
    assert host.ssh_run(f"timeout 3 {outside}", check=False).returncode != 0
    assert host.ssh_run("timeout 3 bash -c 'exec 3<>/dev/tcp/lab.internal/22'", check=False).returncode == 124
    host.mend_network()
    assert host.ssh_run(f"timeout 20 {outside}").returncode == 0


def test_files_go_in_and_out_unchanged(pair: lab.Lab) -> None:
    content = bytes(range(256))
    pair[1].put(content, "/srv/new folder/file", "0600")
    assert pair[1].get("/srv/new folder/file") == content
    assert pair[1].ssh_run("stat -c %a '/srv/new folder/file'").stdout.strip() == "600"
    with pytest.raises(lab.LabError, match="No such file"):
        pair[1].get("/absent")


def test_disks_survive_a_reboot_and_a_pulled_plug(pair: lab.Lab) -> None:
    host = pair[1]
    host.ssh_run("echo kept > /root/note && sync")
    before = host.boot_id()
    host.reboot()
    assert host.boot_id() != before
    host.power_off()
    assert not host.running()
    host.power_on()
    assert host.get("/root/note") == b"kept\n"


def test_an_exception_leaves_no_trace() -> None:
    seen: dict[int, dict[str, list[str]]] = {}

    def fail() -> None:
        with lab.hosts(1, disk_mib=300) as hosts:
            seen[hosts.record.number] = traces(hosts.record.number)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    [(number, during)] = seen.items()
    assert during.keys() == {"links", "namespaces", "tables", "mounts", "loops", "groups", "processes", "records"}
    assert traces(number) == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_trace(number: signal.Signals) -> None:
    with holder() as (process, held):
        assert "processes" in traces(held)
        process.send_signal(number)
        process.wait(timeout=60)
        assert traces(held) == {}


def test_leftovers_of_a_killed_run_go_at_the_next_start_and_living_labs_stay() -> None:
    with holder() as (killed, dead), holder() as (living, alive):
        killed.kill()
        killed.wait()
        assert traces(dead).keys() >= {"links", "namespaces", "tables", "mounts", "records"}
        with registry_lock():
            remove_leftovers()
        assert traces(dead) == {}
        assert "processes" in traces(alive)
        refused = subprocess.run(
            [sys.executable, "-m", "tests.lab", "destroy", str(alive)], cwd=ROOT, capture_output=True, text=True
        )
        assert refused.returncode == 1
        assert f"belongs to process {living.pid}" in refused.stderr
        living.send_signal(signal.SIGINT)
        living.wait(timeout=60)
        assert traces(alive) == {}


def test_hosts_that_are_kept_outlive_the_command_until_they_are_destroyed() -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "tests.lab", *arguments], cwd=ROOT, capture_output=True, text=True)

    before = {record.number for record in records()}
    up = command("up")
    assert up.returncode == 0, up.stderr
    kept = next(record for record in records() if record.number not in before and "up" in record.notes)
    command("sweep")
    assert f"lab {kept.number}: kept" in command("list").stdout
    assert command("ssh", f"{kept.number}/host1", "hostname").stdout.strip() == "host1"
    assert command("destroy", str(kept.number)).stdout.strip() == f"lab {kept.number} is removed"
    assert traces(kept.number) == {}


def test_a_process_number_that_was_given_to_another_process_is_not_the_owner() -> None:
    now = Process.of(os.getpid())
    assert now.alive()
    assert not Process(now.pid, now.start_ticks - 1, now.boot_id).alive()
    assert not Process(now.pid, now.start_ticks, "an earlier boot").alive()


def test_a_record_reads_back_as_it_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.lab.registry.STATE", tmp_path)
    record = LabRecord(7, Process.of(os.getpid()), "/x", [{"index": 0}], restore=[("/proc/sys/x", "0")])
    record.save()
    assert LabRecord.read(tmp_path / "7.json") == record
    assert json.loads((tmp_path / "7.json").read_text())["owner"]["pid"] == os.getpid()

"""Simulated cards on a booted lab host: every reader on it sees them, over boots and faults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import lab
from tests.lab.apt_repository.debs import Deb, Entry, build, link, program
from tests.sim import faults, inventory
from tests.sim.faults import Fault
from tests.sim.lab_host import LIBRARIES, SimulatedGpus

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def host() -> Iterator[lab.Host]:
    with lab.hosts(1) as hosts:
        yield hosts[0]


def _answer(host: lab.Host, command: str) -> tuple[int, str]:
    done = host.ssh_run(command, check=False)
    return done.returncode, done.stdout


def test_cards_survive_a_boot_and_forget_their_power_limit(host: lab.Host) -> None:
    SimulatedGpus(host).install(inventory.load("2x3090-nvlink"))
    listed = _answer(host, "nvidia-smi -L")
    assert listed[1].count("NVIDIA GeForce RTX 3090") == 2
    failed = host.ssh_run("systemctl --failed --no-legend").stdout
    assert _answer(host, "nvidia-smi -pl 250")[0] == 0
    host.reboot()
    assert _answer(host, "nvidia-smi -L") == listed
    limits = _answer(host, "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits")
    assert limits == (0, "350.00\n350.00\n")
    assert host.ssh_run("systemctl --failed --no-legend").stdout == failed
    assert host.ssh_run("ls /sys/module/kernel/parameters && stat -c %a /", user="guest").stdout.endswith("755\n")
    seen = host.ssh_run(
        "cat /sys/module/nvidia/version /sys/bus/pci/devices/*/device; ls /proc/driver/nvidia/gpus /dev/nvidia[0-9]*"
    ).stdout.split()
    assert seen == [
        *("580.126.09", "0x2204", "0x2204", "/dev/nvidia0", "/dev/nvidia1"),
        *("/proc/driver/nvidia/gpus:", "0000:01:00.0", "0000:02:00.0"),
    ]


def test_faults_come_and_go(host: lab.Host) -> None:
    bench = SimulatedGpus(host)
    bench.install(inventory.load("2x3090"))
    for fault, code in ((Fault.lost(1), 15), (Fault.missing_nvml(), 12), (Fault.version_mismatch(), 18)):
        bench.set_faults(fault)
        assert _answer(host, "nvidia-smi -L")[0] == code
        bench.set_faults(faults.NONE)
        assert _answer(host, "nvidia-smi -L")[0] == 0


def test_another_module_than_the_library_is_a_mismatch_until_the_next_boot(host: lab.Host) -> None:
    bench = SimulatedGpus(host)
    bench.install(inventory.load("1x3090"))
    bench.load_module("580.95.05")
    code, words = _answer(host, "nvidia-smi")
    assert (code, words.splitlines()[0]) == (18, "Failed to initialize NVML: Driver/library version mismatch")
    bench.unload_module()
    assert _answer(host, "nvidia-smi")[0] == 9
    host.reboot()
    assert _answer(host, "nvidia-smi -L")[0] == 0


def test_a_bare_host_has_cards_held_by_nouveau_and_no_driver(host: lab.Host) -> None:
    SimulatedGpus(host).install(inventory.load("1x5090"), driver=None)
    assert _answer(host, "command -v nvidia-smi; ls /proc/driver/nvidia /dev/nvidia0 2>/dev/null")[1] == ""
    assert _answer(host, "cat /sys/bus/pci/devices/0000:01:00.0/device")[1] == "0x2b85\n"
    assert _answer(host, "basename $(readlink /sys/bus/pci/devices/0000:01:00.0/driver)")[1] == "nouveau\n"


def test_wsl2_looks_like_wsl2(host: lab.Host) -> None:
    bench = SimulatedGpus(host)
    bench.install(inventory.load("wsl2-4090"))
    assert "microsoft" in _answer(host, "cat /proc/version")[1]
    assert "RTX 4090" in _answer(host, "/usr/lib/wsl/lib/nvidia-smi -L")[1]
    assert _answer(host, "ls /sys/bus/pci/devices; ls -d /proc/driver/nvidia 2>/dev/null")[1] == ""
    bench.remove()
    assert "microsoft" not in _answer(host, "cat /proc/version")[1]


def test_files_of_packages_outlive_the_cards(host: lab.Host, tmp_path: Path) -> None:
    library = f"{LIBRARIES}/libnvidia-ml.so"
    files = {
        f"{library}.1.2": Entry(b"1.2"),
        f"{library}.1": link("libnvidia-ml.so.1.2"),
        "/usr/bin/nvidia-smi": program(""),
    }
    built = build(Deb(name="qwenlab-lab-smi", version="1", summary="owns nvidia-smi", files=files), tmp_path)
    host.put(built.read_bytes(), "/root/smi.deb")
    bench = SimulatedGpus(host)
    bench.install(inventory.load("1x3090"), driver=None)
    host.ssh_run("dpkg -i /root/smi.deb")
    bench.set_faults(Fault.missing_nvml())
    bench.remove()
    assert _answer(host, f"cat {library}.1.2; ls /usr/bin/nvidia-smi") == (0, "1.2/usr/bin/nvidia-smi\n")
    host.ssh_run("dpkg --purge qwenlab-lab-smi")

"""From a bare host with a card to a driver that works and stays: the whole way, on Debian 13 and 12.

The tests of this file go one way, from the bare host over a held driver to the next branch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.deploying import Run
from tests.lab.drivers import Rack, rack
from tests.sim import inventory

pytestmark = [pytest.mark.lab, pytest.mark.slow]
LIMIT: dict[str, Any] = {"qwen_power_limit_w": 250}


@pytest.fixture(scope="module", params=["trixie", "bookworm"])
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """A host whose card is held by nouveau."""
    with rack(tmp_path_factory.mktemp("driver"), request.param, packages=("unattended-upgrades",)) as made:
        made.stage.prepare(inventory.load("1x3090"))
        yield made


@pytest.fixture(scope="module")
def stopped(bare: Rack) -> Run:
    """The first run: it may not reboot, and another package manager is at work for its first minute."""
    bare.hold_lock(60)
    return bare.run(**LIMIT)


@pytest.fixture(scope="module")
def installed(bare: Rack, stopped: Run) -> Run:
    """The second run, which may."""
    return bare.run(qwen_allow_reboot=True, **LIMIT)


def test_without_leave_to_reboot_a_run_installs_and_says_what_is_left_to_do(bare: Rack, stopped: Run) -> None:
    assert stopped.code == 1
    assert "comes alive at the next boot (nouveau holds the cards): reboot the host and run again" in stopped.text
    assert bare.say("modinfo -F version nvidia").strip() == "580.126.09"
    assert "nouveau" in bare.say("readlink /sys/bus/pci/devices/0000:01:00.0/driver")


def test_b14_a_lock_held_for_a_minute_is_waited_for(bare: Rack, stopped: Run) -> None:
    released = bare.say("cat /root/released")
    first = bare.say("grep -m1 ' install nvidia-driver-pinning-580' /var/log/dpkg.log")
    assert len(released) == len("2026-01-01 00:00:00")
    assert first[: len(released)] >= released, stopped.text


def test_a_bare_host_ends_up_with_a_driver_that_lists_its_card(bare: Rack, installed: Run) -> None:
    assert installed.code == 0, installed.text
    assert "apt-get -qq -o DPkg::Lock::Timeout=600 install" not in installed.text
    assert "GeForce RTX 3090" in bare.say("nvidia-smi -L")
    assert bare.say("cat /sys/module/nvidia/version").strip() == "580.126.09"
    assert bare.say("modinfo -F license nvidia").strip() == "Dual MIT/GPL"
    assert bare.say("systemctl is-active nvidia-persistenced").strip() == "active"
    assert bare.say("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader").strip() == "Enabled"


def test_the_second_run_changes_nothing(bare: Rack, installed: Run) -> None:
    before = bare.host.boot_id()
    bare.settled(qwen_allow_reboot=True, **LIMIT)
    assert bare.host.boot_id() == before


def test_b92_the_power_limit_is_there_again_after_a_boot(bare: Rack, installed: Run) -> None:
    asked = "nvidia-smi --query-gpu=power.limit --format=csv,noheader,nounits"
    assert bare.say(asked).strip() == "250.00"
    bare.host.reboot()
    assert bare.say(asked).strip() == "250.00"


def test_b01_neither_apt_nor_unattended_upgrades_moves_the_driver(bare: Rack, installed: Run) -> None:
    """The pin is taken away, so that the hold alone keeps the newer branches out."""
    bare.say("mv /etc/apt/preferences.d/nvidia-driver-pin /root/")
    assert "610.57.04" in bare.say("apt-cache policy nvidia-driver-cuda")
    bare.say("DEBIAN_FRONTEND=noninteractive apt-get -qq -y upgrade")
    dry = bare.say("unattended-upgrade --dry-run --debug")
    bare.say("mv /root/nvidia-driver-pin /etc/apt/preferences.d/")
    assert "libnvidia-ml1" in dry  # it was considered
    assert (
        "Packages that will be upgraded: \n" in dry or "nvidia" not in dry.split("will be upgraded:")[-1].split("\n")[0]
    )
    versions = bare.say("dpkg-query -W -f '${Version}\\n' nvidia-driver-cuda libnvidia-ml1 nvidia-kernel-open-dkms")
    assert versions.split() == ["580.126.09-1"] * 3
    assert "GPU 0" in bare.say("nvidia-smi -L")


def test_b02_a_hold_that_misses_a_package_is_completed(bare: Rack, installed: Run) -> None:
    bare.say("apt-mark unhold libnvidia-ml1")
    assert bare.run(**LIMIT).changed == ("Driver | Hold",)
    assert "libnvidia-ml1" in bare.say("apt-mark showhold")
    bare.settled(**LIMIT)


def test_another_branch_is_installed_when_it_is_asked_for(bare: Rack, installed: Run) -> None:
    upgraded = bare.run(qwen_allow_reboot=True, qwen_driver_branch=595, **LIMIT)
    assert upgraded.code == 0, upgraded.text
    assert bare.say("nvidia-smi --query-gpu=driver_version --format=csv,noheader").strip() == "595.91.07"
    assert "nvidia-driver-pinning-595" in bare.say("apt-mark showhold")
    bare.settled(qwen_driver_branch=595, **LIMIT)
    bare.settled(**LIMIT)  # nobody asks for a branch: what works stays

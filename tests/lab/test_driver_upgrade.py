"""plays/upgrade_driver.py over two hosts: one after the other; a failure on the first keeps the second as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import lab
from tests.lab.apt_repository import DriverStage, Fault, RepositoryServer, Variant
from tests.lab.deploying import ROOT, inventory
from tests.lab.drivers import TOOLS
from tests.sim import inventory as cards

pytestmark = [pytest.mark.lab, pytest.mark.slow]
# stands for the engines: it is up while the unit is, and says so
UNIT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"
# stands for the battery: writes when it ran, and fails when told so
VERIFY = """\
import os, sys
open("/root/verified", "a").write("once\\n")
sys.exit(os.path.exists("/root/bad"))
"""


@dataclass(frozen=True)
class Fleet:
    """Two hosts whose driver an earlier run installed."""

    hosts: list[lab.Host]
    repository: RepositoryServer
    directory: Path

    def run(self, play: str, **more: Any) -> tuple[int, str]:
        """Exit code and words of a play."""
        settings = {
            "qwen_driver_repository": self.repository.url(Variant.GOOD),
            "qwen_driver_key_fingerprint": self.repository.fingerprint(Variant.GOOD),
            **dict.fromkeys(("qwen_min_ram_gib", "qwen_min_release_gib", "qwen_min_model_gib"), 1),
            "qwen_allow_reboot": True,
            **more,
        }
        file = inventory(self.directory, {host.name: {**host.pyinfra_data(), **settings} for host in self.hosts})
        command = [str(Path(sys.executable).with_name("pyinfra")), str(file), str(ROOT / play), "-y", "--json"]
        environment = {**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off"}
        done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=900)
        assert not done.stdout.strip() or json.loads(done.stdout)
        return done.returncode, done.stderr

    def versions(self) -> list[str]:
        """The loaded driver of each host."""
        return [host.ssh_run("cat /sys/module/nvidia/version").stdout.strip() for host in self.hosts]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with (
        lab.hosts(2, packages=TOOLS) as hosts,
        RepositoryServer(str(hosts[0].lab.gateway), distributions=("debian13",)) as repository,
    ):
        made = Fleet(list(hosts), repository, tmp_path_factory.mktemp("fleet"))
        for host in hosts:
            DriverStage(host, repository).prepare(cards.load("1x3090"), nouveau=False)
        code, words = made.run("plays/driver.py")
        assert code == 0, words
        for host in hosts:
            host.put(UNIT.encode(), "/etc/systemd/system/qwen.service")
            host.put(VERIFY.encode(), "/usr/local/lib/qwen/verify.py")
            host.ssh_run("systemctl daemon-reload && systemctl enable --quiet --now qwen.service")
        yield made


def test_without_a_branch_nothing_is_touched(fleet: Fleet) -> None:
    code, words = fleet.run("plays/upgrade_driver.py")
    assert code == 0, words
    assert fleet.versions() == ["580.126.09"] * 2


def test_a_repository_that_goes_away_finds_the_engines_serving_and_the_driver_held(fleet: Fleet) -> None:
    asked = "systemctl show -p ActiveEnterTimestampMonotonic,ActiveState qwen.service; apt-mark showhold | grep -v pin"
    before = [host.ssh_run(asked).stdout for host in fleet.hosts]
    assert all("ActiveState=active" in one and "nvidia-driver-cuda" in one for one in before)
    fleet.repository.set_faults(Fault(paths="*nvidia-kernel-open-dkms_595*", reset_at=200))
    code, words = fleet.run("plays/upgrade_driver.py", qwen_driver_branch=595)
    fleet.repository.set_faults()
    assert code == 1
    assert "not begun: the upgrade of" in words
    assert any("nvidia-kernel-open-dkms_595" in path for path in fleet.repository.requests.all())
    assert [host.ssh_run(asked).stdout for host in fleet.hosts] == before
    assert fleet.versions() == ["580.126.09"] * 2


def test_a_host_that_fails_verification_keeps_the_next_one_as_it_was(fleet: Fleet) -> None:
    fleet.hosts[0].ssh_run("touch /root/bad")
    fleet.hosts[1].ssh_run("touch /root/bad")
    code, words = fleet.run("plays/upgrade_driver.py", qwen_driver_branch=595)
    assert code == 1
    assert "not begun: the upgrade of" in words
    assert sorted(fleet.versions()) == ["580.126.09", "595.91.07"]


def test_the_other_host_follows_once_the_first_is_mended(fleet: Fleet) -> None:
    for host in fleet.hosts:
        host.ssh_run("rm -f /root/bad")
    code, words = fleet.run("plays/upgrade_driver.py", qwen_driver_branch=595)
    assert code == 0, words
    assert fleet.versions() == ["595.91.07"] * 2
    for host in fleet.hosts:
        assert host.ssh_run("systemctl is-active qwen.service").stdout.strip() == "active"
    counts = [int(host.ssh_run("wc -l < /root/verified").stdout) for host in fleet.hosts]
    assert sorted(counts) == [1, 2]  # the one that had failed was asked again
    assert fleet.run("plays/upgrade_driver.py", qwen_driver_branch=595)[0] == 0
    assert counts == [int(host.ssh_run("wc -l < /root/verified").stdout) for host in fleet.hosts]


def test_the_way_back_is_the_same_play(fleet: Fleet) -> None:
    code, words = fleet.run("plays/upgrade_driver.py", qwen_driver_branch=580)
    assert code == 0, words
    assert fleet.versions() == ["580.126.09"] * 2
    for host in fleet.hosts:
        assert host.ssh_run("nvidia-smi -L && systemctl is-active qwen.service").stdout.endswith("active\n")
        assert "nvidia-driver-pinning-580" in host.ssh_run("apt-mark showhold").stdout

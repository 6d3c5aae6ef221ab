"""A driver from the local repository on a bare lab host, with apt alone: what the product's driver task stands on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests import lab
from tests.lab.apt_repository import DriverStage, RepositoryServer, Variant
from tests.sim import inventory

pytestmark = [pytest.mark.lab, pytest.mark.slow]
DISTRIBUTIONS = {"trixie": "debian13", "bookworm": "debian12"}
KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install"
COMPUTE = "nvidia-driver-cuda nvidia-kernel-open-dkms"
TOOLS = ("dkms", "gcc", "make")


@dataclass
class Bench:
    host: lab.Host
    repository: RepositoryServer
    stage: DriverStage
    distribution: str

    def use(self, variant: Variant) -> tuple[int, str]:
        """Make a variant the host's source; exit code and words of apt-get update."""
        self.host.put(self.repository.public_key(variant), KEYRING)
        line = f"deb [signed-by={KEYRING}] {self.repository.url(variant)}/{self.distribution}/x86_64/ /\n"
        self.host.put(line.encode(), "/etc/apt/sources.list.d/cuda.list")
        only = "-o Dir::Etc::sourcelist=sources.list.d/cuda.list -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
        done = self.host.ssh_run(f"apt-get {only} update 2>&1", check=False)
        return done.returncode, done.stdout

    def answer(self, command: str) -> tuple[int, str]:
        done = self.host.ssh_run(f"{{ {command}; }} 2>&1", check=False, timeout=300)
        return done.returncode, done.stdout


@pytest.fixture(scope="module", params=["trixie", "bookworm"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    distribution = DISTRIBUTIONS[request.param]
    with lab.hosts(1, release=request.param, packages=TOOLS) as hosts:
        address = str(hosts[0].lab.gateway)
        with RepositoryServer(address, distributions=(distribution,)) as repository:
            stage = DriverStage(hosts[0], repository)
            stage.prepare(inventory.load("1x3090"), headers=True)
            yield Bench(hosts[0], repository, stage, distribution)


def test_a_driver_comes_alive_at_the_reboot_and_a_new_branch_at_the_next(bench: Bench) -> None:
    assert bench.use(Variant.GOOD)[0] == 0
    bench.host.ssh_run(f"{INSTALL} nvidia-driver-pinning-580")
    bench.host.ssh_run(f"{INSTALL} {COMPUTE}", timeout=300)
    assert "580.126.09" in bench.answer("dkms status nvidia")[1]
    assert bench.answer("modinfo -F version nvidia") == (0, "580.126.09\n")
    assert bench.answer("modprobe nvidia")[1] == "modprobe: ERROR: could not insert 'nvidia': No such device\n"
    assert "nouveau has claimed" in bench.answer("dmesg")[1]
    assert bench.answer("nvidia-smi -L")[0] == 9
    bench.host.reboot()
    assert bench.answer("nvidia-smi -L")[0] == 0
    assert "580.126.09" in bench.answer("cat /proc/driver/nvidia/version")[1]
    assert bench.answer("systemctl is-active nvidia-persistenced") == (0, "active\n")

    bench.host.ssh_run(f"{INSTALL} nvidia-driver-pinning-595 && {INSTALL} {COMPUTE}", timeout=300)
    code, words = bench.answer("nvidia-smi")
    assert (code, words.splitlines()) == (
        18,
        ["Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 595.91"],
    )
    bench.host.reboot()
    assert bench.answer("nvidia-smi --query-gpu=driver_version --format=csv,noheader") == (0, "595.91.07\n")


REFUSED = [
    # variant, release on which apt refuses it, words
    (Variant.EXPIRED_KEY, ("debian12", "debian13"), {"debian12": "EXPKEYSIG", "debian13": "Expired on 2024-01-31"}),
    (Variant.SHA1_KEY, ("debian13",), {"debian13": "SHA1 is not considered secure since 2026-02-01"}),
    (Variant.UNSIGNED, ("debian12", "debian13"), {"debian12": "is not signed", "debian13": "is not signed"}),
]


@pytest.mark.parametrize(("variant", "refusing", "words"), REFUSED, ids=[str(variant) for variant, _, _ in REFUSED])
def test_apt_judges_the_signing_key(
    variant: Variant, refusing: tuple[str, ...], words: dict[str, str], bench: Bench
) -> None:
    code, said = bench.use(variant)
    assert code == (100 if bench.distribution in refusing else 0)
    assert words.get(bench.distribution, "") in said


def test_toolkit_minors_lie_side_by_side_and_the_newer_takes_the_link(bench: Bench) -> None:
    assert bench.use(Variant.GOOD)[0] == 0
    bench.host.ssh_run(f"{INSTALL} cuda-toolkit-13-0 && {INSTALL} cuda-toolkit-13-1")
    assert bench.answer("readlink -f /usr/local/cuda") == (0, "/usr/local/cuda-13.1\n")
    assert "release 13.0, V13.0.2" in bench.answer("/usr/local/cuda-13.0/bin/nvcc --version")[1]
    assert bench.answer("test -f /usr/local/cuda-13.0/include/curand_kernel.h")[0] == 0


def test_secure_boot_rejects_the_module(bench: Bench) -> None:
    assert bench.use(Variant.GOOD)[0] == 0
    bench.answer("apt-get -qq -y purge 'nvidia-*' libnvidia-ml1 libcuda1")
    bench.stage.gpus.install(inventory.load("1x3090"), driver=None, nouveau=False, secure_boot=True)
    bench.host.ssh_run(f"{INSTALL} nvidia-driver-pinning-580 && {INSTALL} {COMPUTE}", timeout=300)
    assert bench.answer("od -An -tu1 /sys/firmware/efi/efivars/SecureBoot-*")[1].split() == ["6", "0", "0", "0", "1"]
    rejected = "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n"
    assert bench.answer("modprobe nvidia") == (1, rejected)
    bench.stage.gpus.install(inventory.load("1x3090"), driver=None, nouveau=False)
    assert bench.answer("modprobe nvidia || nvidia-smi -L")[0] == 0


def test_a_module_that_does_not_compile_is_not_installed(bench: Bench) -> None:
    """Last in this file: it leaves the package half-configured, as such a build does."""
    bench.stage.gpus.install(inventory.load("1x3090"), driver=None)
    bench.answer("apt-get -qq -y purge 'nvidia-*' libnvidia-ml1 libcuda1")
    assert bench.use(Variant.BROKEN_MODULE)[0] == 0
    bench.host.ssh_run(f"{INSTALL} nvidia-driver-pinning-580")
    bench.answer(f"{INSTALL} {COMPUTE}")
    assert "installed" not in bench.answer("dkms status nvidia")[1]
    assert bench.answer("modinfo -F version nvidia")[0] == 1

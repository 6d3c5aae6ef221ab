"""What a run would do on Ubuntu, command by command: golden, from recorded facts. No Ubuntu host is booted by any test.

Facts: NVIDIA driver installation guide (repository directories, names with and without the branch, pinning packages),
package lists of Ubuntu's archive (signed modules per kernel), kernels of the releases.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from qwenlab.operations import driver, driver_packages
from tests.driver.test_operations import run

NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos"
KEY_2022 = "EB693B3035CD5710E231E123A4B469963BF863CC"
KEY_2604 = "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40"
SYSTEMS = {
    # release: kernel that boots, metapackage of its image, headers beside those of the kernel, directory, key
    "22.04": ("5.15.0-160-generic", "linux-image-generic", "linux-headers-generic", "ubuntu2204", "3bf863cc", KEY_2022),
    "22.04 HWE": (
        *("6.8.0-85-generic", "linux-image-generic-hwe-22.04", "linux-headers-generic-hwe-22.04"),
        *("ubuntu2204", "3bf863cc", KEY_2022),
    ),
    "24.04": ("6.8.0-85-generic", "linux-image-generic", "linux-headers-generic", "ubuntu2404", "3bf863cc", KEY_2022),
    "26.04": ("7.0.0-15-generic", "linux-image-generic", "linux-headers-generic", "ubuntu2604", "60DF8A40", KEY_2604),
}
BUILT = {
    # branch, flavour: packages of NVIDIA's repository; up to 580 their names carry the branch
    (580, "open"): "libnvidia-compute-580 nvidia-dkms-580-open nvidia-utils-580 nvidia-compute-utils-580",
    (580, "proprietary"): "libnvidia-compute-580 nvidia-dkms-580 nvidia-utils-580 nvidia-compute-utils-580",
    (595, "open"): "libnvidia-compute nvidia-dkms-open nvidia-persistenced nvidia-modprobe",
    (595, "proprietary"): "libnvidia-compute nvidia-dkms nvidia-persistenced nvidia-modprobe",
}
SIGNED = {
    # branch: packages of Ubuntu's archive for hosts under Secure Boot
    branch: f"nvidia-utils-{branch}-server nvidia-headless-no-dkms-{branch}-server-open "
    f"linux-modules-nvidia-{branch}-server-open-KERNEL nvidia-compute-utils-{branch}-server"
    for branch in (580, 595)
}
INSTALL = "install --yes --no-install-recommends -o Dpkg::Options::=--force-confold"
ONLY = "-o Dir::Etc::sourcelist=/etc/apt/sources.list.d/qwenlab-nvidia.list -o Dir::Etc::sourceparts=-"


def host(system: str) -> list[str]:
    """The probe's answers on a bare host."""
    kernel, image, *_ = SYSTEMS[system]
    return [
        *("os=ubuntu", f"release={system.split()[0]}", "arch=x86_64", f"running={kernel}", f"boot_kernel={kernel}"),
        *("pci=0000:01:00.0 0x2204 0x030000 nouveau", f"package={image}\t1\tii \tlinux-meta"),
    ]


def said(command: str) -> str:
    """A command as a person reads it: apt-get without its wrapper."""
    found = re.search(r"apt-get -qq -o DPkg::Lock::Timeout=600 (.*?) 2>&1", command)
    return f"apt-get {found[1]}" if found else command


def offered(names: str, branch: int) -> dict[str, Any]:
    """apt has these packages."""
    return {"apt-cache policy": [line for one in names.split() for line in (f"{one}:", f"  Candidate: {branch}.9.9-1")]}


@pytest.mark.parametrize(("branch", "flavour"), BUILT, ids=[f"{branch}-{flavour}" for branch, flavour in BUILT])
@pytest.mark.parametrize("system", SYSTEMS)
def test_nvidias_repository_and_dkms(system: str, branch: int, flavour: str) -> None:
    kernel, _, headers, directory, key_file, key = SYSTEMS[system]
    state = host(system)
    wished: dict[str, Any] = {"driver_branch": branch, "driver_flavour": flavour}
    keyring = f"/etc/apt/keyrings/qwenlab-nvidia-{key}.gpg"
    assert run(driver.check, state, **wished) == []

    made, (fetch_key, _), (source, source_line), (preferences, pins), (update, _) = run(
        driver_packages.repository, state, **wished
    )
    assert made[0] == "install -d -m 755 /etc/apt/keyrings"
    assert json.loads(fetch_key.removeprefix("python3 - '").removesuffix("'")) == {
        "url": f"{NVIDIA}/{directory}/x86_64/{key_file}.pub",
        "fingerprint": key,
        "path": keyring,
    }
    assert "> /etc/apt/sources.list.d/qwenlab-nvidia.list.new" in source
    assert source_line == f"deb [signed-by={keyring}] {NVIDIA}/{directory}/x86_64/ /\n"
    assert "> /etc/apt/preferences.d/qwenlab-nvidia.new" in preferences
    assert pins == "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n"
    assert said(update) == f"apt-get {ONLY} -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any update"

    ((pin, _),) = run(driver_packages.pin, state, **wished)
    assert said(pin) == f"apt-get {INSTALL} --allow-downgrades nvidia-driver-pinning-{branch}"

    names = f"linux-headers-{kernel} {headers} {BUILT[branch, flavour]}"
    fetched = [said(one) for one, _ in run(driver_packages.fetch, state, offered(names, branch), **wished)]
    assert fetched == [
        "apt-get update",
        f"apt-get {INSTALL} --download-only {names}",
    ]
    install, build, *_ = (said(one) for one, _ in run(driver_packages.install, state, **wished))
    assert install == f"apt-get {INSTALL} {names}"
    assert build == f"modinfo -k {kernel} nvidia >/dev/null 2>&1 || dkms autoinstall -k {kernel} || true"


@pytest.mark.parametrize("branch", SIGNED)
@pytest.mark.parametrize("system", SYSTEMS)
def test_b05_canonicals_signed_modules_under_secure_boot(system: str, branch: int) -> None:
    """From Ubuntu's archive alone: no other repository, no pin, no DKMS, no headers."""
    state = [*host(system), "secure_boot=1"]
    wished: dict[str, Any] = {"driver_branch": branch}
    assert run(driver.check, state, **wished) == []
    assert run(driver_packages.repository, state, **wished) == run(driver_packages.pin, state, **wished) == []
    names = SIGNED[branch].replace("KERNEL", SYSTEMS[system][0])
    fetched = [said(one) for one, _ in run(driver_packages.fetch, state, offered(names, branch), **wished)]
    assert fetched[1:] == [f"apt-get {INSTALL} --download-only {names}"]
    install, (end, _) = run(driver_packages.install, state, **wished)
    assert (said(install[0]), end) == (f"apt-get {INSTALL} {names}", "refused")  # this host stays bare


@pytest.mark.parametrize(
    ("system", "branch", "words"),
    [
        ("22.04", 610, "needs dkms 3.1.8, this release has 2.8.7"),
        ("24.04", 610, "needs dkms 3.1.8, this release has 3.0.11"),
        ("26.04", 590, "does not build on kernel 7.0.0-15-generic"),
    ],
)
def test_branches_that_a_release_cannot_build_are_refused(system: str, branch: int, words: str) -> None:
    ((kind, reason),) = run(driver.check, host(system), driver_branch=branch)
    assert kind == "refused"
    assert words in reason

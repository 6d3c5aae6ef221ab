"""Golden names: repository directories, packages, pins and headers, for each distribution and branch."""

from __future__ import annotations

import pytest

from qwenlab.driver import files
from qwenlab.driver.packages import Target, belongs, driver_set, headers, pinning_package
from qwenlab.driver.tables import ARCHITECTURES, DISTRIBUTIONS

DEBIAN_OPEN = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced", "nvidia-modprobe")
DEBIAN_CLOSED = ("nvidia-driver-cuda", "nvidia-kernel-dkms", "nvidia-persistenced", "nvidia-modprobe")
UBUNTU_580 = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580", "nvidia-compute-utils-580")
UBUNTU_580_CLOSED = ("libnvidia-compute-580", "nvidia-dkms-580", "nvidia-utils-580", "nvidia-compute-utils-580")
UBUNTU_595 = ("libnvidia-compute", "nvidia-dkms-open", "nvidia-persistenced", "nvidia-modprobe")
SIGNED = (
    "nvidia-utils-580-server",
    "nvidia-headless-no-dkms-580-server-open",
    "linux-modules-nvidia-580-server-open-6.8.0-60-generic",
    "nvidia-compute-utils-580-server",
)

SETS = [
    # system, target, packages
    (("debian", "12"), Target(580, "open"), DEBIAN_OPEN),
    (("debian", "13"), Target(580, "open"), DEBIAN_OPEN),
    (("debian", "13"), Target(595, "open"), DEBIAN_OPEN),
    (("debian", "13"), Target(580, "proprietary"), DEBIAN_CLOSED),
    (("debian", "13"), Target(580, "open", switched=True), (*DEBIAN_OPEN, "nvidia-fabricmanager")),
    (("debian", "13"), Target(595, "open", switched=True, nvlsm=True), (*DEBIAN_OPEN, "nvidia-fabricmanager", "nvlsm")),
    (("ubuntu", "22.04"), Target(580, "open"), UBUNTU_580),
    (("ubuntu", "24.04"), Target(580, "open"), UBUNTU_580),
    (("ubuntu", "24.04"), Target(580, "proprietary"), UBUNTU_580_CLOSED),
    (("ubuntu", "24.04"), Target(595, "open"), UBUNTU_595),
    (("ubuntu", "26.04"), Target(595, "open"), UBUNTU_595),
    (("ubuntu", "24.04"), Target(580, "open", switched=True), (*UBUNTU_580, "nvidia-fabricmanager-580")),
    (("ubuntu", "24.04"), Target(595, "open", switched=True), (*UBUNTU_595, "nvidia-fabricmanager")),
    (("ubuntu", "24.04"), Target(580, "open", signed=True), SIGNED),
]


@pytest.mark.parametrize(("system", "target", "expected"), SETS)
def test_a_distribution_and_branch_take_exactly_these_packages(
    system: tuple[str, str], target: Target, expected: tuple[str, ...]
) -> None:
    assert driver_set(target, DISTRIBUTIONS[system], "6.8.0-60-generic") == expected


SOURCES = [
    (("debian", "12"), "debian12", "3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    (("debian", "13"), "debian13", "8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200"),
    (("ubuntu", "22.04"), "ubuntu2204", "3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    (("ubuntu", "24.04"), "ubuntu2404", "3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC"),
    (("ubuntu", "26.04"), "ubuntu2604", "60DF8A40.pub", "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40"),
]


@pytest.mark.parametrize(("system", "directory", "key", "fingerprint"), SOURCES)
def test_each_release_has_its_directory_and_its_key(
    system: tuple[str, str], directory: str, key: str, fingerprint: str
) -> None:
    row = DISTRIBUTIONS[system]
    assert (row.repository, row.key_file, row.fingerprint) == (directory, key, fingerprint)


def test_b11_debian_13_is_never_given_the_key_that_its_apt_refuses() -> None:
    """The key of debian12 and ubuntu2204 carries a SHA-1 self-signature."""
    assert DISTRIBUTIONS["debian", "13"].fingerprint != DISTRIBUTIONS["debian", "12"].fingerprint
    assert DISTRIBUTIONS["debian", "13"].repository == "debian13"


def test_b13_the_source_names_its_keyring_and_no_apt_key_is_used() -> None:
    row = DISTRIBUTIONS["ubuntu", "24.04"]
    made = files.source("https://mirror/cuda/repos", row.repository, ARCHITECTURES["x86_64"], row.fingerprint)
    assert made.content == (
        "deb [signed-by=/etc/apt/keyrings/qwenlab-nvidia-EB693B3035CD5710E231E123A4B469963BF863CC.gpg] "
        "https://mirror/cuda/repos/ubuntu2404/x86_64/ /\n"
    )
    assert made.mode == "644"


def test_b01_unattended_upgrades_passes_every_driver_package_over() -> None:
    import re

    text = files.unattended().content
    patterns = re.findall(r'"(.+)";', text)
    assert text.startswith("Unattended-Upgrade::Package-Blacklist {")
    for name in ("nvidia-driver-cuda", "libnvidia-ml1", "libcuda1", "cuda-drivers", "linux-modules-nvidia-580-generic"):
        assert any(re.match(pattern, name) for pattern in patterns), name
    assert not any(re.match(pattern, "linux-image-amd64") for pattern in patterns)


def test_pins_name_the_branch_or_the_exact_version() -> None:
    assert pinning_package(Target(580, "open")) == "nvidia-driver-pinning-580"
    assert pinning_package(Target(595, "open", "595.91.07")) == "nvidia-driver-pinning-595.91.07"


HEADERS = [
    # installed images, headers beside those of the kernel that will boot
    ((), ()),
    (("linux-image-amd64",), ("linux-headers-amd64",)),
    (("linux-image-generic-hwe-24.04",), ("linux-headers-generic-hwe-24.04",)),
    (("linux-image-6.12.48-amd64", "linux-image-cloud-amd64"), ("linux-headers-cloud-amd64",)),
]


@pytest.mark.parametrize(("images", "metas"), HEADERS)
def test_headers_follow_the_image_metapackage_that_is_there(images: tuple[str, ...], metas: tuple[str, ...]) -> None:
    assert headers("6.12.48-amd64", frozenset(images)) == ("linux-headers-6.12.48-amd64", *metas)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libnvidia-common-580", True),
        ("nvidia-modprobe", True),
        ("xserver-xorg-video-nvidia-580", True),
        ("nvidia-driver-pinning-580", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("cuda-toolkit-13-0", False),
        ("linux-image-amd64", False),
    ],
)
def test_what_belongs_to_the_driver(name: str, expected: bool) -> None:
    assert belongs(name) is expected

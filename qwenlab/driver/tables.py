"""Facts about distributions and driver branches, as tables. A new release or branch is one row."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_BRANCH = 580
LAST_SUFFIXED_BRANCH = 580  # on Ubuntu, names up to this branch carry it (NVIDIA driver installation guide, renames)
FIRST_OPEN_ONLY_BRANCH = 615  # no proprietary module from here on


@dataclass(frozen=True)
class Distribution:
    """One release that drivers are installed on.

    Attributes:
        repository: directory below `.../compute/cuda/repos`.
        key_file: the signing key in it.
        fingerprint: that key's, 40 hex digits.
        ubuntu: Ubuntu's package names, and Canonical's signed modules.
        dkms: version of the distribution's dkms.
    """

    repository: str
    key_file: str
    fingerprint: str
    ubuntu: bool
    dkms: tuple[int, int, int]


_KEY_2022 = "EB693B3035CD5710E231E123A4B469963BF863CC"
_KEY_DEBIAN_13 = "02182E60104FCDC26EAE1B8597A5D4CB8793F200"
_KEY_UBUNTU_2604 = "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40"

# (os-release ID, VERSION_ID) -> Distribution. Keys: NVIDIA CUDA installation guide and the repositories' key files; the
# older key's self-signature is SHA-1, which Debian 13 refuses since 2026-02-01 (NVIDIA/cuda-repo-management 30, 34).
# Ubuntu 26.04: the file's name as in Azure/AgentBaker, the fingerprint ("Kitmaker (Ubuntu 26.04)") as four unrelated
# public install recipes of 2026 record it; were it wrong, the host would be refused.
DISTRIBUTIONS = {
    ("debian", "12"): Distribution("debian12", "3bf863cc.pub", _KEY_2022, False, (3, 0, 10)),
    ("debian", "13"): Distribution("debian13", "8793F200.pub", _KEY_DEBIAN_13, False, (3, 2, 2)),
    ("ubuntu", "22.04"): Distribution("ubuntu2204", "3bf863cc.pub", _KEY_2022, True, (2, 8, 7)),
    ("ubuntu", "24.04"): Distribution("ubuntu2404", "3bf863cc.pub", _KEY_2022, True, (3, 0, 11)),
    ("ubuntu", "26.04"): Distribution("ubuntu2604", "60DF8A40.pub", _KEY_UBUNTU_2604, True, (3, 2, 2)),
}

# machine -> directory of NVIDIA's repository
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}


@dataclass(frozen=True)
class Branch:
    """One driver branch: its CUDA version, kind, and what it cannot do.

    Attributes:
        cuda: the CUDA version that it reports.
        kind: long-lived, production or new-feature.
        kernel_below: first kernel that its DKMS source does not build on.
        dkms: oldest dkms that its packages take.
        in_ubuntu: Ubuntu's archive keeps packages of it that stay on this branch.
    """

    cuda: str
    kind: str
    kernel_below: tuple[int, int] | None = None
    dkms: tuple[int, int, int] = (0, 0, 0)
    in_ubuntu: bool = False


# Kinds and CUDA versions: NVIDIA data-centre driver documentation, "supported drivers and CUDA toolkit versions". 590
# on kernel 7.0: GoogleCloudPlatform/ops-agent PR 2426. dkms of 610: NVIDIA forum reports on Ubuntu 22.04. Ubuntu: names
# of other branches become transitional packages that move the host to a later branch.
BRANCHES = {
    580: Branch("13.0", "long-lived", in_ubuntu=True),
    590: Branch("13.1", "new-feature", kernel_below=(7, 0)),
    595: Branch("13.2", "production", in_ubuntu=True),
    610: Branch("13.3", "new-feature", dkms=(3, 1, 8)),
    615: Branch("13.4", "new-feature", dkms=(3, 1, 8)),
}

# Containers that own no kernel; their driver is the outer machine's affair (systemd-detect-virt --container).
CONTAINERS = ("docker", "podman", "lxc", "lxc-libvirt", "openvz", "rkt", "proot", "pouch", "container-other")


def distribution(os: str, release: str) -> Distribution | None:
    """The row of a system; None for derivatives and releases that are not in the table."""
    return DISTRIBUTIONS.get((os, release))

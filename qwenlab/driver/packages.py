"""Package names: by distribution, branch and module flavour.

Sources: NVIDIA driver installation guide (compute-only sets, version locking, renames after 580), package lists of
Ubuntu's archive.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from qwenlab.driver.tables import LAST_SUFFIXED_BRANCH, Distribution

Flavour = Literal["open", "proprietary"]

# Everything that a driver's packages are named: held together, and kept from unattended-upgrades.
DRIVER_NAMES = re.compile(
    r"^(nvidia-|libnvidia-|libcuda1|libcudadebugger1|libnvoptix|libnvcuvid|libnv-|cuda-drivers|linux-modules-nvidia-"
    r"|xserver-xorg-video-nvidia|firmware-nvidia|nvlsm)"
)
# NVIDIA's other products share the prefix and move on their own.
OTHER_PRODUCTS = re.compile(
    r"^(nvidia-container|libnvidia-container|nvidia-docker|nvidia-cuda|nvidia-cudnn|nvidia-nsight)"
)
PINNING = "nvidia-driver-pinning-"


@dataclass(frozen=True)
class Target:
    """The driver that a host shall have.

    Attributes:
        branch: e.g. 580.
        flavour: kernel module.
        version: exact version, when asked for.
        signed: Canonical's signed modules from Ubuntu's archive instead of NVIDIA's repository and DKMS.
        switched: the host has NVSwitch, so the fabric manager belongs to the set.
        nvlsm: NVSwitch of the fifth NVLink generation (Blackwell): the subnet manager too.
    """

    branch: int
    flavour: Flavour
    version: str | None = None
    signed: bool = False
    switched: bool = False
    nvlsm: bool = False


def driver_set(target: Target, row: Distribution, kernel: str) -> tuple[str, ...]:
    """What is installed for `target`, the package that shows the version first.

    Args:
        kernel: release of the kernel that will boot; signed modules come per kernel flavour.
    """
    if target.signed:
        return _signed(target, kernel)
    return (*(_ubuntu(target) if row.ubuntu else _debian(target)), *fabric_set(target, row))


def fabric_set(target: Target, row: Distribution) -> tuple[str, ...]:
    """The fabric manager's packages; empty without NVSwitch."""
    if not target.switched:
        return ()
    suffixed = (row.ubuntu and target.branch <= LAST_SUFFIXED_BRANCH) or target.signed
    name = f"nvidia-fabricmanager-{target.branch}" if suffixed else "nvidia-fabricmanager"
    return (name, *(("nvlsm",) if target.nvlsm else ()))


def pinning_package(target: Target) -> str:
    """What makes apt stay on the branch or version: a file with priority 1000, to be installed before the driver."""
    return f"{PINNING}{target.version or target.branch}"


def headers(kernel: str, installed: frozenset[str], held: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Headers for one kernel, and the metapackages that follow those of installed images.

    A metapackage whose image is not there is left out: it could pull in another kernel. So is one whose image is held:
    that kernel does not move, and neither must its headers.
    """
    metas = sorted(
        name.replace("linux-image-", "linux-headers-", 1)
        for name in installed - held
        if re.fullmatch(
            r"linux-image-(amd64|arm64|cloud-amd64|generic|virtual|generic-hwe-[0-9.]+|virtual-hwe-[0-9.]+)", name
        )
    )
    return (f"linux-headers-{kernel}", *(name for name in metas if name not in held))


def belongs(name: str) -> bool:
    """Whether a package is part of a driver."""
    return bool(DRIVER_NAMES.match(name)) and not OTHER_PRODUCTS.match(name)


def from_ubuntu_archive(name: str) -> bool:
    """Whether only Ubuntu's archive has a package of this name."""
    return bool(re.match(r"^(nvidia-headless-|linux-modules-nvidia-)|^nvidia-[a-z-]+-[0-9]{3}-server(-open)?$", name))


def _debian(target: Target) -> tuple[str, ...]:
    module = "nvidia-kernel-open-dkms" if target.flavour == "open" else "nvidia-kernel-dkms"
    return ("nvidia-driver-cuda", module, "nvidia-persistenced", "nvidia-modprobe")


def _ubuntu(target: Target) -> tuple[str, ...]:
    tail = "-open" if target.flavour == "open" else ""
    if target.branch <= LAST_SUFFIXED_BRANCH:
        number = target.branch
        return (
            *(f"libnvidia-compute-{number}", f"nvidia-dkms-{number}{tail}"),
            *(f"nvidia-utils-{number}", f"nvidia-compute-utils-{number}"),
        )
    return ("libnvidia-compute", f"nvidia-dkms{tail}", "nvidia-persistenced", "nvidia-modprobe")


def _signed(target: Target, kernel: str) -> tuple[str, ...]:
    tail = "-open" if target.flavour == "open" else ""
    number = target.branch
    fabric = (f"nvidia-fabricmanager-{number}",) if target.switched else ()
    return (
        f"nvidia-utils-{number}-server",
        f"nvidia-headless-no-dkms-{number}-server{tail}",
        f"linux-modules-nvidia-{number}-server{tail}-{kernel}",
        f"nvidia-compute-utils-{number}-server",
        *fabric,
    )

"""The driver's packages as NVIDIA's repository names and relates them, for Debian and Ubuntu.

Names and relations: NVIDIA driver installation guide (compute-only sets, version locking), and package lists published
by users of debian12, debian13, ubuntu2204 and ubuntu2404. On Debian every branch has the same package names; on Ubuntu
the names of branch 580 and before carry the branch, later ones do not.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.lab.apt_repository.debs import Deb, Entry, link, program, text
from tests.lab.apt_repository.driver_texts import (
    DKMS_CONF,
    DKMS_POSTINST,
    DKMS_PRERM,
    ENABLE,
    FABRIC_MANAGER,
    FABRIC_UNIT,
    LDCONFIG,
    MAKEFILE,
    MODULE_C,
    NO_NOUVEAU,
    PERSISTENCED,
    PERSISTENCED_UNIT,
)
from tests.sim import build as simulator

# newest last; what apt installs when nothing is pinned is the newest branch, not the long-lived one
VERSIONS = ("580.95.05", "580.126.09", "595.91.07", "610.57.04")
BRANCHES = tuple(dict.fromkeys(version.split(".")[0] for version in VERSIONS))
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LICENCES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}

PINNED = (
    *("*nvidia*", "cuda-drivers*", "cuda-compat*", "libcuda1*", "libnv*", "firmware-nvidia*", "nvlsm"),
    *("xserver-xorg-video-nvidia*", "libxnvctrl*"),
)


@dataclass(frozen=True)
class Family:
    """How a distribution's packages are named and versioned."""

    revision: str  # what follows the driver version
    ubuntu: bool


DEBIAN = Family("-1", ubuntu=False)
UBUNTU = Family("-1ubuntu1", ubuntu=True)


def packages(family: Family, version: str, fabric_version: str | None = None, broken: bool = False) -> list[Deb]:
    """All packages of one driver version.

    `fabric_version`: the fabric manager's, where a repository lags behind. `broken`: the module does not compile.
    """
    make = _Names(family, version)
    return [
        *_libraries(make),
        *_modules(make, broken),
        *_daemons(make, fabric_version or version),
        *_metas(make),
    ]


def pinning_packages() -> list[Deb]:
    """nvidia-driver-pinning-<branch> and -<full version>: each a file for apt, only one may be there."""
    names = [(branch, f"{branch}.*") for branch in BRANCHES] + [(version, f"{version}*") for version in VERSIONS]
    return [
        Deb(
            name=f"nvidia-driver-pinning-{suffix}",
            version=f"{suffix}-1",
            architecture="all",
            summary=f"Pin the NVIDIA driver to {suffix}",
            relations={
                "Provides": "nvidia-driver-pinning",
                "Conflicts": "nvidia-driver-pinning",
                "Replaces": "nvidia-driver-pinning",
            },
            files={
                "etc/apt/preferences.d/nvidia-driver-pin": text(
                    f"Package: {' '.join(PINNED)}\nPin: version {pattern}\nPin-Priority: 1000\n"
                )
            },
        )
        for suffix, pattern in names
    ]


@dataclass(frozen=True)
class _Names:
    """Package names of one driver version in one family."""

    family: Family
    version: str

    @property
    def deb_version(self) -> str:
        return self.version + self.family.revision

    @property
    def branch(self) -> str:
        return self.version.split(".")[0]

    @property
    def suffixed(self) -> bool:
        return self.family.ubuntu and int(self.branch) <= 580

    def name(self, debian: str, ubuntu: str | None = None, flavour: str = "") -> str:
        """`ubuntu` with the branch in it where names carry one: nvidia-dkms-580-open, nvidia-dkms-open."""
        if not self.family.ubuntu:
            return debian
        stem = ubuntu or debian
        tail = f"-{flavour}" if flavour else ""
        return f"{stem}-{self.branch}{tail}" if self.suffixed else f"{stem}{tail}"

    def deb(self, name: str, summary: str, **more: object) -> Deb:
        return Deb(name=name, version=self.deb_version, summary=summary, source="nvidia-graphics-drivers", **more)  # type: ignore[arg-type]

    def exact(self, *names: str) -> str:
        return ", ".join(f"{name} (= {self.deb_version})" for name in names)


def _libraries(make: _Names) -> list[Deb]:
    programs = simulator.programs()
    nvml = {
        f"{LIBRARIES}/libnvidia-ml.so.{make.version}": Entry(programs.library.read_bytes()),
        f"{LIBRARIES}/libnvidia-ml.so.1": link(f"libnvidia-ml.so.{make.version}"),
    }
    cuda = {
        f"{LIBRARIES}/libcuda.so.{make.version}": Entry(_cuda_library()),
        f"{LIBRARIES}/libcuda.so.1": link(f"libcuda.so.{make.version}"),
        f"{LIBRARIES}/libcuda.so": link("libcuda.so.1"),
    }
    smi = {"usr/bin/nvidia-smi": Entry(programs.smi.read_bytes(), 0o755)}
    scripts = {"postinst": LDCONFIG, "postrm": LDCONFIG}
    if make.family.ubuntu:
        name = make.name("", "libnvidia-compute")
        depends = {"Depends": f"{make.exact(make.name('', 'nvidia-kernel-common'))}, libc6"}
        return [
            make.deb(name, "NVIDIA libcompute package", relations=depends, files=nvml | cuda | smi, scripts=scripts)
        ]
    needs = make.exact("libcuda1", "libnvidia-ml1", "nvidia-kernel-support", "nvidia-persistenced", "nvidia-modprobe")
    kernel = f"nvidia-kernel-{make.version}"
    return [
        make.deb("libnvidia-ml1", "NVIDIA Management Library (NVML)", files=nvml, scripts=scripts),
        make.deb("libcuda1", "NVIDIA CUDA Driver Library", files=cuda, scripts=scripts),
        make.deb(
            "nvidia-driver-cuda",
            "NVIDIA driver, compute only",
            files=smi,
            relations={"Depends": f"{needs}, nvidia-kernel-dkms (= {make.deb_version}) | {kernel}"},
        ),
    ]


def _modules(make: _Names, broken: bool) -> list[Deb]:
    common = make.name("nvidia-kernel-support", "nvidia-kernel-common")
    files = {"usr/lib/modprobe.d/nvidia-blacklists-nouveau.conf": text(NO_NOUVEAU)}
    result = [make.deb(common, "NVIDIA kernel support files", files=files)]
    for flavour in ("open", "proprietary"):
        if flavour == "proprietary" and int(make.branch) >= 615:
            continue  # 615 is the first branch without a proprietary module
        is_open = flavour == "open"
        name = make.name(
            "nvidia-kernel-open-dkms" if is_open else "nvidia-kernel-dkms", "nvidia-dkms", "open" if is_open else ""
        )
        provides = f"nvidia-kernel-{make.version}, nvidia-kernel-dkms-any"
        result.append(
            make.deb(
                name,
                f"NVIDIA {flavour} kernel module, DKMS source",
                relations={
                    "Depends": f"dkms, gcc, make, {make.exact(common)}",
                    "Provides": provides,
                    "Conflicts": "nvidia-kernel-dkms-any",
                    "Replaces": "nvidia-kernel-dkms-any",
                },
                files=_module_sources(make.version, flavour, broken),
                scripts={
                    "postinst": DKMS_POSTINST.format(version=make.version),
                    "prerm": DKMS_PRERM.format(version=make.version),
                },
            )
        )
    return result


def _module_sources(version: str, flavour: str, broken: bool) -> dict[str, Entry]:
    base = f"usr/src/nvidia-{version}"
    error = "#error implicit declaration of function 'drm_fbdev_ttm_driver_fbdev_probe'" if broken else ""
    values = {"version": version, "licence": LICENCES[flavour], "error": error}
    names = ("nvidia", "nvidia-uvm", "nvidia-modeset")
    sources = {f"{base}/{name}.c": text(MODULE_C % {**values, "name": name.replace("-", "_")}) for name in names}
    return {
        **sources,
        f"{base}/Makefile": text(MAKEFILE),
        f"{base}/dkms.conf": text(DKMS_CONF.format(version=version)),
    }


def _daemons(make: _Names, fabric_version: str) -> list[Deb]:
    fabric = _Names(make.family, fabric_version)
    return [
        make.deb(
            "nvidia-persistenced",
            "daemon to maintain persistent software state in the NVIDIA driver",
            files={
                "usr/bin/nvidia-persistenced": program(PERSISTENCED),
                "usr/lib/systemd/system/nvidia-persistenced.service": text(PERSISTENCED_UNIT),
            },
            scripts={"postinst": ENABLE.format(unit="nvidia-persistenced.service")},
        ),
        make.deb(
            "nvidia-modprobe",
            "utility to load NVIDIA kernel modules and create device nodes",
            files={"usr/bin/nvidia-modprobe": program("#!/bin/sh\nexec modprobe nvidia-uvm\n")},
        ),
        fabric.deb(
            "nvidia-fabricmanager" if not make.suffixed else f"nvidia-fabricmanager-{fabric.branch}",
            "Fabric Manager for NVSwitch based systems",
            files={
                "usr/bin/nv-fabricmanager": program(FABRIC_MANAGER.format(version=fabric_version)),
                "usr/lib/systemd/system/nvidia-fabricmanager.service": text(FABRIC_UNIT),
            },
        ),
    ]


def _metas(make: _Names) -> list[Deb]:
    """The metapackages. Their dependencies name no exact version, so that only a pin holds a branch."""
    compute = make.name("nvidia-driver-cuda", "libnvidia-compute")
    open_dkms = make.name("nvidia-kernel-open-dkms", "nvidia-dkms", "open")
    closed_dkms = make.name("nvidia-kernel-dkms", "nvidia-dkms")
    at_least = f"(>= {make.deb_version})"
    driver_open = make.name("nvidia-driver-open", "nvidia-driver", "open") if make.suffixed else "nvidia-driver-open"
    driver = f"nvidia-driver-{make.branch}" if make.suffixed else "nvidia-driver"
    everything = f"nvidia-persistenced {at_least}, nvidia-modprobe {at_least}"
    needs = {
        driver_open: f"{compute} {at_least}, {open_dkms} {at_least}, {everything}",
        driver: f"{compute} {at_least}, {closed_dkms} {at_least}, {everything}",
        make.name("nvidia-open", "nvidia-open"): f"{driver_open} {at_least}",
        make.name("cuda-drivers", "cuda-drivers"): f"{driver} {at_least}",
    }
    return [
        make.deb(name, "NVIDIA driver metapackage", section="non-free/metapackages", relations={"Depends": depends})
        for name, depends in needs.items()
    ]


@cache
def _cuda_library() -> bytes:
    """libcuda.so.1 of a machine without usable cards: every client is told so (CUDA_ERROR_NO_DEVICE, 100)."""
    source = "int cuInit(unsigned flags) { return 100; }\nint cuDriverGetVersion(int *v) { *v = 13000; return 0; }\n"
    with tempfile.TemporaryDirectory() as scratch:
        code, library = Path(scratch) / "cuda.c", Path(scratch) / "libcuda.so.1"
        code.write_text(source)
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", str(library), str(code)]
        subprocess.run(command, check=True, capture_output=True)
        return library.read_bytes()

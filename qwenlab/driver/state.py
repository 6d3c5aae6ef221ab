"""What is there of driver, packages, kernel and firmware: one value, read from the lines that the probe prints."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from qwenlab.driver.packages import belongs
from qwenlab.facts.driver_text import package_version
from qwenlab.gpu_data import find

# nouveau's successor in the kernel, by the name of its PCI driver and of its module. It takes cards from Turing to Ada
# away from NVIDIA's module without making use of them (Ubuntu 26.04's first kernels; beclab/Olares 3963).
NOVA = ("NovaCore", "nova_core", "nova-core")
GPU_CLASSES = ("0x0300", "0x0302", "0x0380")


@dataclass(frozen=True)
class Card:
    """An NVIDIA card on the bus, known without any driver."""

    address: str
    device_id: str
    driver: str = ""

    @property
    def label(self) -> str:
        """Its product name where the device table knows it."""
        spec = find(device_id=self.device_id)
        return f"{spec.name if spec else f'card 10de:{self.device_id}'} ({self.address})"


@dataclass(frozen=True)
class Package:
    """A package as dpkg knows it; `status` is dpkg's short form, `ii` when installed and configured."""

    version: str
    status: str
    source: str = ""


@dataclass(frozen=True)
class DriverState:
    """The answers.

    Attributes:
        running, boot_kernel: kernel release now, and the one that the next boot takes.
        loaded, loaded_open: the kernel module's version and whether it is the open one.
        module, module_open: the same of the module that lies on disk for `boot_kernel`.
        module_files: every nvidia.ko for that kernel.
        smi_code, smi: exit code (127: no such program) and lines of `nvidia-smi -L`.
        broken: dpkg has half-configured packages.
        mok_enrolled: the key that DKMS signs with is enrolled; None when nobody could say.
        sources: apt source file to the distribution directory of NVIDIA's repository that it names.
        keyrings: keys of NVIDIA's repository that runs have put there, now or earlier.
        managed: an earlier run has installed the driver.
    """

    os: str = ""
    release: str = ""
    architecture: str = ""
    running: str = ""
    boot_kernel: str = ""
    boot_id: str = ""
    cards: tuple[Card, ...] = ()
    nvswitches: int = 0
    nouveau: bool = False
    loaded: str | None = None
    loaded_open: bool | None = None
    module: str | None = None
    module_open: bool | None = None
    module_files: tuple[str, ...] = ()
    dkms: tuple[str, ...] = ()
    smi_code: int = 127
    smi: tuple[str, ...] = ()
    packages: dict[str, Package] = field(default_factory=dict)
    held: frozenset[str] = frozenset()
    broken: bool = False
    secure_boot: bool = False
    mok_enrolled: bool | None = None
    container: str = ""
    wsl: bool = False
    runfile: bool = False
    sources: dict[str, str] = field(default_factory=dict)
    keyrings: tuple[str, ...] = ()
    managed: bool = False
    rebooted_for: str = ""
    log: tuple[str, ...] = ()

    @property
    def holder(self) -> str | None:
        """The kernel's own driver that has taken the cards before NVIDIA's."""
        if self.nouveau:
            return "nouveau"
        return "nova_core" if any(card.driver in NOVA for card in self.cards) else None

    @property
    def listed(self) -> int:
        """Cards that nvidia-smi lists."""
        return sum(line.startswith("GPU ") for line in self.smi) if self.smi_code == 0 else 0

    @property
    def works(self) -> bool:
        """Whether nvidia-smi lists every card that the bus shows."""
        return self.listed > 0 and self.listed >= len(self.cards)

    @property
    def installed(self) -> frozenset[str]:
        """Names of whole packages."""
        return frozenset(name for name, one in self.packages.items() if one.status.startswith(("ii", "hi")))

    @property
    def driver_packages(self) -> dict[str, Package]:
        """The installed packages that make up the driver: by name, or built from the driver's source."""
        return {
            name: one
            for name, one in self.packages.items()
            if one.status[1:2] not in ("n", "c") and (belongs(name) or one.source.startswith("nvidia-graphics-drivers"))
        }

    @property
    def user_space(self) -> str | None:
        """Version of the packages that hold NVML and CUDA's library."""
        for name, one in self.driver_packages.items():
            if re.match(r"^(libnvidia-compute|libnvidia-ml1|libcuda1|nvidia-driver-cuda)", name):
                return package_version(one.version)
        return None

    @property
    def mismatch(self) -> bool:
        """Whether module and libraries differ: nvidia-smi says so, or packages are newer than what is loaded."""
        if any("version mismatch" in line for line in self.smi):
            return True
        return self.loaded is not None and self.user_space is not None and self.loaded != self.user_space


def parse(lines: list[str]) -> DriverState:
    """`DriverState` from `key=value` lines; unknown ones are passed over.

    Raises:
        ValueError: a number is not one.
    """
    single: dict[str, str] = {}
    many: dict[str, list[str]] = {}
    for line in lines:
        key, separator, value = line.partition("=")
        if separator and re.fullmatch(r"[a-z_]+", key):
            single[key] = value.strip()
            many.setdefault(key, []).append(value.rstrip())
    devices = [value.split() for value in many.get("pci", [])]
    packages = {}
    for value in many.get("package", []):
        name, version, status, source = (*value.split("\t"), "", "", "")[:4]
        if name:
            packages[name] = Package(version, status.strip(), source)
    return DriverState(
        os=single.get("os", ""),
        release=single.get("release", ""),
        architecture=single.get("arch", ""),
        running=single.get("running", ""),
        boot_kernel=single.get("boot_kernel") or single.get("running", ""),
        boot_id=single.get("boot_id", ""),
        cards=tuple(
            Card(words[0], words[1].removeprefix("0x").lower(), words[3] if len(words) > 3 else "")
            for words in devices
            if len(words) > 2 and words[2].startswith(GPU_CLASSES)
        ),
        nvswitches=sum(len(words) > 2 and words[2].startswith("0x0680") for words in devices),
        nouveau=single.get("nouveau") == "yes",
        loaded=single.get("loaded") or None,
        loaded_open=_yes(single.get("loaded_open")),
        module=single.get("module") or None,
        module_open="GPL" in single["module_licence"] if single.get("module_licence") else None,
        module_files=tuple(many.get("module_file", [])),
        dkms=tuple(many.get("dkms", [])),
        smi_code=int(single.get("smi_code") or 127),
        smi=tuple(many.get("smi", [])),
        packages=packages,
        held=frozenset(many.get("held", [])),
        broken=single.get("broken") == "yes",
        secure_boot=single.get("secure_boot") == "1",
        mok_enrolled=_yes(single.get("mok_enrolled")),
        container=single.get("container", ""),
        wsl=single.get("wsl") == "yes",
        runfile=single.get("runfile") == "yes",
        sources=dict(value.split(" ", 1) for value in many.get("source", []) if " " in value),
        keyrings=tuple(many.get("keyring", [])),
        managed=single.get("managed") == "yes",
        rebooted_for=single.get("rebooted_for", ""),
        log=tuple(many.get("log", [])),
    )


def _yes(text: str | None) -> bool | None:
    return {"yes": True, "no": False}.get(text or "")

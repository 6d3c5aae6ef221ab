"""The host around the cards: distribution, memory, disks, virtualisation, toolkits; one function a capture."""

from __future__ import annotations

import re
import shlex

from qwenlab.host_inventory import Disk, OperatingSystem

_GIB_KIB = 1 << 20
_PSEUDO = ("proc", "sysfs", "devpts", "cgroup", "cgroup2", "overlay", "squashfs", "devtmpfs", "efivarfs", "autofs")


def operating_system(os_release: str | None, uname: str | None) -> OperatingSystem:
    """From /etc/os-release and `uname -srm` ("Linux 6.8.0 x86_64"), or `-a`, which names the host first."""
    values: dict[str, str] = {}
    for line in (os_release or "").splitlines():
        key, equals, raw = line.partition("=")
        if equals and re.fullmatch(r"[A-Z_]+", key.strip()):
            try:
                values[key.strip()] = " ".join(shlex.split(raw))
            except ValueError:
                values[key.strip()] = raw.strip().strip("\"'")
    words = (uname or "").split()
    if len(words) > 4 and words[0] == "Linux":
        machines = [word for word in words if word in ("x86_64", "aarch64")]
        words = [words[0], words[2], *machines[:1]]
    return OperatingSystem(
        id=values.get("ID"),
        version_id=values.get("VERSION_ID"),
        codename=values.get("VERSION_CODENAME"),
        pretty_name=values.get("PRETTY_NAME"),
        kernel=words[1] if len(words) == 3 else None,
        architecture=words[2] if len(words) == 3 else None,
    )


def memory_gib(meminfo: str | None) -> tuple[float | None, float | None]:
    """(total, available) RAM in GiB from /proc/meminfo."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+([0-9]+) kB", meminfo or "", re.MULTILINE))
    total, available = (found.get(key) for key in ("MemTotal", "MemAvailable"))
    return (
        round(int(total) / _GIB_KIB, 2) if total else None,
        round(int(available) / _GIB_KIB, 2) if available else None,
    )


def disks(df: str | None, mounts: str | None) -> tuple[tuple[Disk, ...], float | None]:
    """Mounted file systems and the size of /dev/shm in GiB, from `df -PTk` and /proc/mounts."""
    options: dict[str, tuple[str, ...]] = {}
    for line in (mounts or "").splitlines():
        fields = line.split()
        if len(fields) >= 4:
            options[fields[1].replace("\\040", " ")] = tuple(fields[3].split(","))
    found: list[Disk] = []
    shm: float | None = None
    for line in (df or "").splitlines():
        match = re.match(r"^\S.*?\s(\S+)\s+([0-9]+)\s+[0-9]+\s+([0-9]+)\s+[0-9]+%\s+(/.*)$", line)
        if not match:
            continue
        kind, total, free, mount = match[1], int(match[2]), int(match[3]), match[4]
        if mount == "/dev/shm":
            shm = round(total / _GIB_KIB, 2)
        elif kind not in _PSEUDO or mount == "/":
            found.append(
                Disk(
                    mount=mount,
                    filesystem=kind,
                    total_gib=round(total / _GIB_KIB, 2),
                    free_gib=round(free / _GIB_KIB, 2),
                    options=options.get(mount, ()),
                )
            )
    return tuple(found), shm


def cpu(cpuinfo: str | None) -> tuple[str | None, str | None, int | None]:
    """(model, vendor, logical CPUs) from `model name`, `vendor_id` and a count line of the capture."""
    text = cpuinfo or ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    vendor = re.search(r"^vendor_id\s*:\s*(\S+)$", text, re.MULTILINE)
    count = re.search(r"^count ([0-9]+)$", text, re.MULTILINE)
    return (
        model.group(1).strip() if model else None,
        vendor.group(1) if vendor else None,
        int(count.group(1)) if count else None,
    )


def numa_nodes(nodes: str | None) -> int | None:
    """How many NUMA nodes /sys/devices/system/node/online names ("0-1", "0,2")."""
    total = 0
    for part in (nodes or "").strip().split(","):
        match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        if not match:
            return None
        total += int(match[2] or match[1]) - int(match[1]) + 1
    return total


def secure_boot(text: str | None) -> bool | None:
    """From mokutil's words or the firmware variable's last byte ("efivar 1"); None on a BIOS machine."""
    lowered = (text or "").lower()
    if "secureboot enabled" in lowered or "efivar 1" in lowered:
        return True
    if "secureboot disabled" in lowered or "efivar 0" in lowered:
        return False
    return None


def iommu_enabled(groups: str | None) -> bool | None:
    """From the number of IOMMU groups."""
    text = (groups or "").strip()
    return int(text) > 0 if re.fullmatch(r"[0-9]{1,5}", text) else None


def nvcc_release(text: str | None) -> str | None:
    """`13.0.88` or `13.0` from `nvcc --version`, of the first compiler in the capture."""
    match = re.search(r"release ([0-9.]+), V([0-9.]+)", text or "")
    return match.group(2) if match else None


def toolkits(text: str | None) -> tuple[str, ...]:
    """Toolkit directories under /usr/local, by version."""
    found = re.findall(r"/cuda-([0-9]+\.[0-9]+)\s*$", text or "", re.MULTILINE)
    return tuple(sorted(set(found), key=lambda version: tuple(map(int, version.split(".")))))


def glibc(text: str | None) -> str | None:
    """glibc's version from `ldd --version` or `getconf GNU_LIBC_VERSION`."""
    match = re.search(r"(?:glibc|GLIBC|GNU libc)[^\n]*?([0-9]+\.[0-9]+)\s*$", text or "", re.MULTILINE)
    return match.group(1) if match else None

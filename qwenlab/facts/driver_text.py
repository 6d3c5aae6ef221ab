"""The NVIDIA driver as files and packages: what is loaded, what is installed, and by whom."""

from __future__ import annotations

import re

from qwenlab.host_inventory import Driver

_VERSION = r"[0-9]{3}\.[0-9]{1,3}(?:\.[0-9]{1,2})?"
_USER_SPACE = re.compile(r"^(?:libnvidia-compute|libcuda1|libnvidia-ml1|nvidia-utils|nvidia-driver-cuda|nvidia-smi)")


def driver(captures: dict[str, str], library: str | None, cuda: str | None) -> Driver:
    """One value from the captures driver_version, modules, modinfo, packages, holds, module_files and runfile.

    `library` and `cuda` are what NVML or nvidia-smi said.
    """
    version_file = captures.get("driver_version", "")
    loaded = re.search(rf"NVRM version:[^\n]*?\s({_VERSION})\s", version_file + " ")
    modules = captures.get("modules", "")
    modinfo = captures.get("modinfo", "")
    installed = re.search(rf"^version:\s*({_VERSION})\s*$", modinfo, re.MULTILINE)
    packages = dict(re.findall(r"^(\S+)\t(\S+)\tinstall ok installed", captures.get("packages", ""), re.MULTILINE))
    from_packages = next(
        (package_version(version) for name, version in packages.items() if _USER_SPACE.match(name)), None
    )
    files = tuple(
        line for line in captures.get("module_files", "").splitlines() if line.endswith((".ko", ".xz", ".zst", ".gz"))
    )
    return Driver(
        loaded=loaded.group(1) if loaded else _plain(captures.get("module_version")),
        installed=installed.group(1) if installed else from_packages,
        library=library or from_packages,
        cuda=cuda,
        open_module=_open(version_file, modinfo),
        nouveau_loaded=bool(re.search(r"^nouveau\b", modules, re.MULTILINE))
        if modules or "modules" in captures
        else None,
        module_files=files,
        packages=packages,
        held=tuple(name for name in captures.get("holds", "").split() if name in packages),
        runfile="nvidia-uninstall" in captures["runfile"] if "runfile" in captures else None,
    )


def package_version(text: str) -> str | None:
    """The driver version inside a package version ("1:580.126.09-0ubuntu0.24.04.1" holds 580.126.09)."""
    match = re.search(rf"(?:^|:)({_VERSION})(?:[-+~]|$)", text)
    return match.group(1) if match else None


def plain_version(text: str | None) -> str | None:
    """The version that a free text begins with ("595.71.05 (self-built)")."""
    match = re.match(rf"{_VERSION}", text or "")
    return match.group(0) if match else None


def branch(version: str | None) -> int | None:
    """The branch of a driver version: 580 of 580.126.09."""
    match = re.match(r"([0-9]{3})(?:\.|$)", version or "")
    return int(match.group(1)) if match else None


def _open(version_file: str, modinfo: str) -> bool | None:
    if version_file.strip():
        return "Open Kernel Module" in version_file
    licence = re.search(r"^license:\s*(.+)$", modinfo, re.MULTILINE)
    return "GPL" in licence.group(1) if licence else None


def _plain(text: str | None) -> str | None:
    return text.strip() if text and re.fullmatch(_VERSION, text.strip()) else None

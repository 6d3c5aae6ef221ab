"""Control groups of lab hosts: one for each host in every hierarchy of this machine (v1, hybrid or v2)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from tests.lab.shell import LabError

_ROOT = Path("/sys/fs/cgroup")
_GONE_WITHIN = 20.0  # seconds


def hierarchies() -> list[Path]:
    """Mount points of the hierarchies that hold processes of a host."""
    if (_ROOT / "cgroup.controllers").exists():
        return [_ROOT]
    found = [_ROOT / name for name in ("unified", "systemd", "memory")]
    return [path for path in found if (path / "cgroup.procs").exists()]


def create(name: str, memory_mib: int | None) -> list[Path]:
    """Make group `name` in every hierarchy; returns the groups' directories."""
    groups = [hierarchy / name for hierarchy in hierarchies()]
    for group in groups:
        group.mkdir(exist_ok=True)
    if memory_mib is not None:
        limits = [group / limit for group in groups for limit in ("memory.max", "memory.limit_in_bytes")]
        usable = [limit for limit in limits if limit.exists()]
        if not usable:
            raise LabError("this machine's cgroups have no memory controller, so a host cannot have a memory limit")
        for limit in usable:
            limit.write_text(str(memory_mib << 20))
    return groups


def populated(name: str) -> bool:
    """Whether any process is in group `name`."""
    return bool(_pids([hierarchy / name for hierarchy in hierarchies()]))


def remove(prefix: str) -> None:
    """Kill every process in groups whose name begins with `prefix`, then remove the groups."""
    groups = [group for hierarchy in hierarchies() for group in hierarchy.glob(f"{prefix}*")]
    deadline = time.monotonic() + _GONE_WITHIN
    while not _emptied(groups):
        if time.monotonic() > deadline:
            raise LabError(f"processes {sorted(_pids(groups))} of a lab host do not end")
        time.sleep(0.02)


def _emptied(groups: list[Path]) -> bool:
    for pid in _pids(groups):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    try:
        for directory in reversed(_with_subgroups(groups)):
            directory.rmdir()
    except OSError:  # busy: a killed process is still on its way out
        return False
    return True


def _with_subgroups(groups: list[Path]) -> list[Path]:
    # os.walk passes over groups that vanish while it looks: a host makes and removes them all the time.
    return [Path(directory) for group in groups for directory, _, _ in os.walk(group)]


def _pids(groups: list[Path]) -> set[int]:
    pids: set[int] = set()
    for group in _with_subgroups(groups):
        with contextlib.suppress(OSError):
            pids.update(int(line) for line in (group / "cgroup.procs").read_text().split())
    return pids

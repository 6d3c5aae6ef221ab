"""Which labs exist on this machine, who owns each, and whether that owner still lives.

A lab is written down in /run before its first trace exists. A run that dies leaves its record, and the record's
number tells the names of all that has to be removed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.cache import locked

STATE = Path("/run/qwenlab-lab")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass
class Process:
    """A process that cannot be mistaken for a later one with the same number."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Process:
        """The running process `pid`. Raises ProcessLookupError when there is none."""
        ticks = _start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks, _BOOT_ID.read_text().strip())

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return self.boot_id == _BOOT_ID.read_text().strip() and _start_ticks(self.pid) == self.start_ticks


@dataclass
class LabRecord:
    """One lab as written down on this machine.

    Attributes:
        number: names of all traces derive from it.
        owner: the process whose life the lab shares; None for a lab that is kept until `destroy`.
        directory: disks, keys and console logs of its hosts.
        hosts: for each host what `Host` needs to be found again, see `tests.lab.host`.
        processes: helpers of a kept lab (its servers), ended with it.
        restore: kernel switches (path, value) to set back when the last lab goes.
    """

    number: int
    owner: Process | None
    directory: str
    hosts: list[dict[str, Any]] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    restore: list[tuple[str, str]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where the record lies."""
        return STATE / f"{self.number}.json"

    def owned_by_the_living(self) -> bool:
        """Whether the run that made this lab still runs."""
        return self.owner is not None and self.owner.alive()

    def save(self) -> None:
        """Write the record, complete or not at all."""
        STATE.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(asdict(self), indent=1))
        partial.replace(self.path)

    def forget(self) -> None:
        """Remove the record: the last step of a removal."""
        self.path.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path) -> LabRecord:
        """A record as saved."""
        data = json.loads(path.read_text())
        data["owner"] = Process(**data["owner"]) if data["owner"] else None
        data["processes"] = [Process(**process) for process in data["processes"]]
        data["restore"] = [(name, value) for name, value in data["restore"]]
        return cls(**data)


def records() -> list[LabRecord]:
    """Every lab of this machine, by number."""
    return sorted((LabRecord.read(path) for path in STATE.glob("*.json")), key=lambda record: record.number)


@contextmanager
def registry_lock() -> Iterator[None]:
    """Only one process at a time claims a number or removes a lab."""
    with locked(STATE / "lock"):
        yield


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])

"""Taking a lab away without a trace, whatever state it is in."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from tests.lab import cgroups, network
from tests.lab.cache import cache_directory
from tests.lab.registry import LabRecord, Process, records, registry_lock
from tests.lab.shell import LabError, run

_GONE_WITHIN = 20.0  # seconds a killed process may take to vanish


def remove(record: LabRecord) -> None:
    """End the lab's processes and remove its mounts, links, rules and record; its files wait for `empty_trash`.

    Called under the registry's lock. Deleting an engine's tens of thousands of files there would keep every other lab
    from starting for a minute.

    Raises:
        LabError: something would not go; the record stays so that the next attempt finds it.
    """
    for process in record.processes:
        end(process)
    cgroups.remove(f"qwenlab-lab-{record.number}-")
    locks = _nspawn_locks(Path(record.directory))
    for mount in reversed(_mounts_below(Path(record.directory))):
        run(["umount", "--lazy", mount])
    network.close(network.LabNetwork(record.number))
    for machine in Path("/run/systemd/nspawn").glob(f"*/qwl{record.number}-*"):
        shutil.rmtree(machine, ignore_errors=True)
    for lock in locks:
        lock.unlink(missing_ok=True)
    _throw_away(Path(record.directory))
    if [other.number for other in records()] == [record.number]:
        for path, value in record.restore:
            if Path(path).exists():
                Path(path).write_text(value)
    record.forget()


def _throw_away(directory: Path) -> None:
    if not directory.exists():
        return
    trash = _trash(directory.parent)
    trash.mkdir(parents=True, exist_ok=True)
    try:
        directory.rename(trash / f"{directory.name}-{os.getpid()}-{time.time_ns()}")
    except OSError as error:
        raise LabError(
            f"{directory} could not be removed ({error}); see what still uses it with: fuser -vm {directory}"
        ) from None


def _trash(running: Path) -> Path:
    return running.with_name("trash")


def empty_trash() -> None:
    """Delete the files of removed labs, also those whose deletion was cut off. Needs no lock.

    The folder itself stays: another process may be about to move a lab into it.
    """
    trash = _trash(cache_directory() / "running")
    for entry in trash.iterdir() if trash.exists() else ():
        run(["rm", "-rf", "--one-file-system", str(entry)], check=False)


def remove_leftovers() -> list[int]:
    """Remove the labs of dead owners; returns their numbers. Labs of the living and kept labs stay. Takes no lock."""
    dead = [record for record in records() if record.owner is not None and not record.owner.alive()]
    for record in dead:
        remove(record)
    return [record.number for record in dead]


def destroy(number: int | None = None) -> list[int]:
    """Remove kept labs and those of dead owners (only lab `number` when given); returns the numbers removed.

    Raises:
        LabError: the lab named belongs to a run that lives, or there is no such lab.
    """
    with registry_lock():
        chosen = [record for record in records() if number in (None, record.number)]
        if number is not None and not chosen:
            raise LabError(f"there is no lab {number}; `list` shows those that are")
        if number is not None and chosen[0].owned_by_the_living():
            owner = chosen[0].owner
            raise LabError(f"lab {number} belongs to process {owner.pid if owner else '?'}, which still runs")
        gone = [record for record in chosen if not record.owned_by_the_living()]
        for record in gone:
            remove(record)
    empty_trash()
    return [record.number for record in gone]


def end(process: Process) -> None:
    """Kill one process and wait until it is gone."""
    if process.alive():
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _GONE_WITHIN
    while process.alive():
        if time.monotonic() > deadline:
            raise LabError(f"process {process.pid} does not end")
        time.sleep(0.02)


def _mounts_below(directory: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if Path(point).is_relative_to(directory)]


def _nspawn_locks(directory: Path) -> list[Path]:
    """Lock files that systemd-nspawn leaves for each root directory, named after its device and inode."""
    roots = [root.stat() for root in directory.glob("*/root")]
    return [Path(f"/run/systemd/nspawn/locks/inode-{root.st_dev}:{root.st_ino}") for root in roots]

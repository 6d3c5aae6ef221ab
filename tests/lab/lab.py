"""`hosts(...)`: a lab for the length of a `with` block."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.lab import boot, network
from tests.lab.cache import cache_directory
from tests.lab.host import Host, HostSpec
from tests.lab.registry import LabRecord, Process, records, registry_lock
from tests.lab.removal import empty_trash, remove, remove_leftovers
from tests.lab.shell import LabError, run


@dataclass
class Lab(Sequence[Host]):
    """The hosts of a lab, in order; a sequence, so that `first, second = hosts` works."""

    record: LabRecord
    members: list[Host]

    def __getitem__(self, index: Any) -> Any:
        return self.members[index]

    def __len__(self) -> int:
        return len(self.members)

    @property
    def gateway(self) -> str:
        """This machine's address as the hosts see it (also `lab.internal` there): local servers listen on it."""
        return str(network.LabNetwork(self.record.number).gateway)

    @property
    def directory(self) -> Path:
        """A directory of this machine that goes away with the lab."""
        return Path(self.record.directory)


@contextmanager
def hosts(wanted: int | Sequence[HostSpec] = 1, **common: Any) -> Iterator[Lab]:
    """Boot hosts, yield them, remove every trace after.

    Args:
        wanted: how many equal hosts, or one spec for each.
        common: fields of `HostSpec` for equal hosts, such as `release="bookworm"`.

    Raises:
        LabError: not root, a program is missing, or a host does not boot.
    """
    specs = [HostSpec(**common)] * wanted if isinstance(wanted, int) else list(wanted)
    if common and not isinstance(wanted, int):
        raise TypeError("give either specs or common fields, not both")
    with removed_after(claim(keep=False)) as lifetime:
        yield fill(lifetime.record, specs)


@dataclass
class Lifetime:
    """How long a lab lasts: to the end of its block, unless it is kept."""

    record: LabRecord

    def keep(self, note: str) -> None:
        """The lab stays after this process, until `destroy`; `note` says whose it is."""
        self.record.owner = None
        self.record.notes[note] = ""
        self.record.save()


@contextmanager
def removed_after(record: LabRecord) -> Iterator[Lifetime]:
    """Remove the lab at the end of the block, however it ends: normally, by an exception, Ctrl-C or SIGTERM."""
    with _termination_unwinds():
        try:
            yield Lifetime(record)
        finally:
            if record.owner is not None:
                with _undisturbed():
                    with registry_lock():
                        remove(record)
                    empty_trash()


def claim(*, keep: bool) -> LabRecord:
    """Write down a new lab under a free number, after the leftovers of dead runs are gone."""
    if os.geteuid() != 0:
        raise LabError("the lab boots real hosts (network namespaces, mounts) and needs root; run it with sudo")
    with registry_lock():
        remove_leftovers()
        taken = {record.number for record in records()}
        for number in network.NUMBERS:
            if number not in taken and network.is_free(network.LabNetwork(number)):
                break
        else:
            raise LabError("no lab number is free; `python -m tests.lab list` shows who holds them")
        restore = next((record.restore for record in records()), [network.forwarding_of_uplink()])
        owner = None if keep else Process.of(os.getpid())
        record = LabRecord(number, owner, str(cache_directory() / "running" / str(number)), restore=restore)
        record.save()
    empty_trash()
    return record


def fill(record: LabRecord, specs: Sequence[HostSpec]) -> Lab:
    """Make network, disks and keys of a claimed lab, then boot all hosts at the same time."""
    lab_network = network.LabNetwork(record.number)
    directory = Path(record.directory)
    directory.mkdir(parents=True, mode=0o700)
    key = directory / "key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "qwenlab lab", "-f", str(key)])
    network.open_bridge(lab_network)
    named = [spec.named(f"host{index + 1}") for index, spec in enumerate(specs)]
    names = {spec.name: str(lab_network.address(index)) for index, spec in enumerate(named)}
    names["lab.internal"] = str(lab_network.gateway)
    members = []
    for index, spec in enumerate(named):
        record.hosts.append({"index": index, "spec": asdict(spec)})
        record.save()
        host = host_of(record, index)
        network.open_host(lab_network, index)
        if not spec.network:
            host.cut_network()
        boot.prepare(host, names)
        boot.start(host)
        members.append(host)
    for host in members:
        host.wait_booted()
    return Lab(record, members)


def host_of(record: LabRecord, index: int) -> Host:
    """A host found again from its lab's record."""
    data = dict(record.hosts[index]["spec"])
    data["packages"] = tuple(data["packages"])
    directory = Path(record.directory)
    lab_network = network.LabNetwork(record.number)
    place = directory / data["name"]
    return Host(HostSpec(**data), lab_network, index, place, directory / "key", directory / "known_hosts")


@contextmanager
def _termination_unwinds() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP act like Ctrl-C, so that labs are removed on the way out.

    pytest ends its run on that exception and on no other.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Within, a second Ctrl-C or SIGTERM waits: a removal is short and must end."""
    waiting = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

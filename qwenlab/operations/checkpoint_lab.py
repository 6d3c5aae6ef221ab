"""What the hosts of one run know of each other's checkpoints: who fetches for all, who serves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from pyinfra.api.host import Host
from pyinfra.api.state import State


@dataclass
class Served:
    """A checkpoint that a host serves: the server's address and the manifest of what it has verified."""

    host: str
    url: str
    manifest: dict[str, Any]


@dataclass
class Lab:
    """The hosts of a run whose checkpoints come from peers.

    Attributes:
        wanted: host to the places (`owner/name/revision`) that its plan needs.
        whole: host to those that it has.
        addresses: host to its addresses.
        served: place to who serves it.
    """

    wanted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole: dict[str, frozenset[str]] = field(default_factory=dict)
    addresses: dict[str, list[str]] = field(default_factory=dict)
    served: dict[str, Served] = field(default_factory=dict)

    def claim(self, host: str, wanted: tuple[str, ...], whole: frozenset[str], addresses: list[str]) -> None:
        """Note what a host needs and has."""
        self.wanted[host], self.whole[host], self.addresses[host] = wanted, whole, addresses

    def source(self, place: str) -> str | None:
        """The host that serves a checkpoint: the first that has it, else the first that needs it."""
        has = [host for host, places in self.whole.items() if place in places]
        needs = [host for host, places in self.wanted.items() if place in places]
        return next(iter(sorted(has) or sorted(needs)), None)

    def has_its_own(self, host: str, place: str) -> bool:
        """Whether a host takes a checkpoint from no other: it has it, or fetches it for all."""
        return place in self.whole.get(host, ()) or self.source(place) == host

    def lacking(self, place: str) -> list[str]:
        """Hosts that need a checkpoint from another."""
        source = self.source(place)
        return [
            host
            for host, places in self.wanted.items()
            if place in places and host != source and place not in self.whole[host]
        ]


_LABS: WeakKeyDictionary[State, Lab] = WeakKeyDictionary()


def lab_of(host: Host) -> Lab:
    """The lab of the run that a host belongs to."""
    return _LABS.setdefault(host.state, Lab())

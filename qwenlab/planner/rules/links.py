"""What two cards can do with each other, as far as the inventory knows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from qwenlab.host_inventory import Ancestor, GpuPair
from qwenlab.planner.shape import Card, EngineShape

ORDER = {ancestor: place for place, ancestor in enumerate(Ancestor)}  # nearest first


def pair_of(links: Iterable[GpuPair], a: Card, b: Card) -> GpuPair | None:
    """What is known between two cards, in either order."""
    low, high = sorted((a.index, b.index))
    return next((link for link in links if (link.a, link.b) == (low, high)), None)


def bridged(pair: GpuPair | None) -> bool:
    """Whether NVLink or an NVSwitch joins the pair."""
    return pair is not None and (pair.nvswitch or pair.nvlink_lanes > 0)


def peer_access(pair: GpuPair | None) -> bool:
    """Whether the two cards may read and write each other's memory.

    A live, value-checked test outranks the driver's word, and that outranks a bridge: its links may be up while the
    driver refuses (a registry key, a hypervisor). Where nobody said anything only a bridge counts, since consumer
    drivers refuse peer access over PCIe.
    """
    if pair is None:
        return False
    if pair.measured_peer_ok is not None:
        return pair.measured_peer_ok
    if bridged(pair):
        return pair.peer_read is not False and pair.peer_write is not False
    return pair.peer_read is True and pair.peer_write is not False


def tensor_groups(shape: EngineShape) -> tuple[tuple[Card, ...], ...]:
    """The cards that all-reduce with each other: consecutive runs of `tp` ranks."""
    return tuple(shape.cards[i : i + shape.tp] for i in range(0, len(shape.cards), shape.tp))


def tensor_pairs(shape: EngineShape) -> tuple[GpuPair | None, ...]:
    """What lies between every two cards of one tensor-parallel group; None where nothing is known."""
    return tuple(pair_of(shape.links, a, b) for group in tensor_groups(shape) for a, b in combinations(group, 2))


def farthest(pairs: Iterable[GpuPair | None]) -> Ancestor | None:
    """The worst common ancestor of several pairs; None when none is known."""
    known = [pair.ancestor for pair in pairs if pair is not None and pair.ancestor is not None]
    return max(known, key=ORDER.__getitem__, default=None)

"""Which cards may form one engine: tensor-parallel groups, pipelines over unequal cards, and their order.

The families below depend on what a card is (kind, bus order, bridges, place in the PCIe tree), never on how much memory
it has or whether peer access works: a better card can only make candidates better, it cannot take one away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, permutations

from qwenlab.host_inventory import GpuPair
from qwenlab.planner.geometry import LEAST_STAGE_LAYERS
from qwenlab.planner.rules.links import ORDER, pair_of, peer_access
from qwenlab.planner.shape import Card
from qwenlab.planner.throughput import Link

TENSOR_SIZES = (1, 2, 4, 8)  # 24 query heads and 4 KV heads must divide or be divided (3 and 6 fail on the KV heads)
PIPELINE_SIZES = (2, 3, 4)
COARSE = 8  # layers moved at once where there are many cards
GRIDS = {1: 1, 2: 1, 3: 4, 4: COARSE}  # the same where there are few, by stages; every fourth layer is full attention
ALL_SUBSETS = 5  # up to so many cards every subset is looked at; above it, neighbours among the sorted cards
SMALL_GIB = 0.25  # of free memory between cards of one kind that makes no difference worth a port of its own
WIDE_NVLINK = 8  # lanes; bridges of workstation cards have four at most


@dataclass(frozen=True)
class Footprint:
    """The cards of one engine replica by position in the sorted list, in rank order (stage by stage)."""

    members: tuple[int, ...]
    tp: int
    pp: int = 1

    @property
    def mask(self) -> int:
        """Bit set of the members."""
        return sum(1 << member for member in self.members)


@dataclass(frozen=True)
class Place:
    """Cards without identity, in rank order: evaluations are shared between hosts and card sets that look alike.

    `grid` is how many layers a pipeline's split moves at once.
    """

    cards: tuple[Card, ...]
    tp: int
    pp: int
    link: Link
    grid: int = 1


@dataclass(frozen=True)
class Interconnect:
    """How the cards of a host reach each other: what is known of each pair, and whether WSL2 lies between them."""

    pairs: Sequence[GpuPair] = ()
    wsl2: bool = False


def place_of(footprint: Footprint, cards: Sequence[Card], interconnect: Interconnect) -> Place:
    """The place that a footprint takes; the slowest link within a tensor-parallel group counts."""
    members = [cards[member] for member in footprint.members]
    groups = (members[i : i + footprint.tp] for i in range(0, len(members), footprint.tp))
    link = max((link_of(group, interconnect) for group in groups), key=list(Link).index)
    if len(members) == 1:
        members = [replace(card, pcie_gb_s=0.0) for card in members]  # nothing crosses the bus
    grid = GRIDS[footprint.pp] if len(cards) <= ALL_SUBSETS else COARSE
    return Place(tuple(_anonymous(card) for card in members), footprint.tp, footprint.pp, link, grid)


def _anonymous(card: Card) -> Card:
    return replace(card, uuid="", index=0, power_limit_w=None)


def levelled(cards: Sequence[Card]) -> tuple[Card, ...]:
    """The cards with small differences in free memory taken out, downwards; their order is kept.

    Idle cards of one kind differ by what the driver and a display server hold (1 MiB, 15 MiB ...). Without this no two
    of them look alike, and copies of one engine would not share a port.
    """
    kinds: dict[Card, list[int]] = {}
    for place, card in enumerate(cards):
        kinds.setdefault(replace(_anonymous(card), memory_gib=0.0, in_use_gib=0.0, pcie_gb_s=0.0), []).append(place)
    result = list(cards)
    for places in kinds.values():
        left = sorted(places, key=lambda place: cards[place].memory_gib - cards[place].in_use_gib)
        while left:
            least = cards[left[0]]
            free = least.memory_gib - least.in_use_gib
            alike = [p for p in left if cards[p].memory_gib - cards[p].in_use_gib - free <= SMALL_GIB]
            for place in alike:
                result[place] = replace(cards[place], memory_gib=least.memory_gib, in_use_gib=least.in_use_gib)
            left = left[len(alike) :]
    return tuple(result)


def sorted_cards(cards: Sequence[Card], links: Sequence[GpuPair]) -> tuple[Card, ...]:
    """Cards by kind, fastest first; within a kind best-bridged neighbours side by side, then bus order."""
    kinds: dict[tuple[float, tuple[int, int], str], list[Card]] = {}
    for card in sorted(cards, key=lambda card: card.index):
        kinds.setdefault(kind_of(card), []).append(card)
    return tuple(card for kind in sorted(kinds) for card in _neighbours(kinds[kind], links))


def _neighbours(cards: list[Card], links: Sequence[GpuPair]) -> list[Card]:
    """Pairs joined best first: NVLink lanes, then the nearest common ancestor, then bus order."""
    left, result = list(cards), []
    while left:
        first = left.pop(0)
        result.append(first)
        if left:
            partner = min(left, key=lambda card: (_distance(first, card, links), card.index))
            left.remove(partner)
            result.append(partner)
    return result


def _distance(a: Card, b: Card, links: Sequence[GpuPair]) -> tuple[int, int]:
    pair = pair_of(links, a, b)
    if pair is None:
        return (0, len(ORDER))
    lanes = 99 if pair.nvswitch else pair.nvlink_lanes
    return (-lanes, ORDER[pair.ancestor] if pair.ancestor else len(ORDER))


def footprints(cards: Sequence[Card]) -> Iterator[Footprint]:
    """Every footprint over the sorted cards that is worth a look.

    Up to five cards: every subset in every form. More: tensor parallel among neighbours of one kind, and pipelines of
    two neighbours; larger mixed sets lose to two smaller engines wherever those fit.
    """
    count = len(cards)
    if count <= ALL_SUBSETS:
        for size in sorted({*TENSOR_SIZES, *PIPELINE_SIZES}):
            for members in combinations(range(count), size):
                yield from _forms(members)
        return
    for size in TENSOR_SIZES:
        for start in range(count - size + 1):
            members = tuple(range(start, start + size))
            if len({kind_of(cards[member]) for member in members}) == 1:
                yield Footprint(members, tp=size)
    for first, second in pairwise(range(count)):
        yield Footprint((second, first), tp=1, pp=2)


def _forms(members: tuple[int, ...]) -> Iterator[Footprint]:
    size = len(members)
    if size in TENSOR_SIZES:
        yield Footprint(members, tp=size)
    if size in PIPELINE_SIZES:
        # Every order: which card comes first must not depend on its slot. The sorted list has the fastest first; a
        # pipeline mostly wants it last, with head and drafter, and among equals the order that comes first is kept.
        for order in permutations(members[::-1]):
            if size < 4 or order[1] > order[2]:  # stages between the ends hold layers alone: their order is their split
                yield Footprint(order, tp=1, pp=size)
    if size == 4:
        for a, b, c, d in ((2, 3, 0, 1), (0, 1, 2, 3), (1, 3, 0, 2), (0, 2, 1, 3), (1, 2, 0, 3), (0, 3, 1, 2)):
            yield Footprint((members[a], members[b], members[c], members[d]), tp=2, pp=2)


def kind_of(card: Card) -> tuple[float, tuple[int, int], str]:
    """What makes cards the same for layouts; the fastest kind sorts first."""
    return (-card.bandwidth_gb_s, card.compute_capability, card.name)


def link_of(cards: Sequence[Card], interconnect: Interconnect) -> Link:
    """The slowest way between any two of these cards; NVSWITCH for a single one."""
    worst = Link.NVSWITCH
    for a, b in combinations(cards, 2):
        link = _link(pair_of(interconnect.pairs, a, b), wsl2=interconnect.wsl2)
        worst = max(worst, link, key=list(Link).index)
    return worst


def _link(pair: GpuPair | None, *, wsl2: bool) -> Link:
    if pair is not None and peer_access(pair):
        if pair.nvswitch or pair.nvlink_lanes >= WIDE_NVLINK:
            return Link.NVSWITCH
        if pair.nvlink_lanes:
            return Link.NVLINK
        return Link.PEER
    return Link.HOST_WSL2 if wsl2 else Link.HOST


def splits(stages: int, layers: int, grid: int = 1) -> Iterator[tuple[int, ...]]:
    """Layer splits in multiples of `grid`, the last stage taking the remainder, none below `LEAST_STAGE_LAYERS`."""
    for cuts in combinations(range(grid, layers, grid), stages - 1):
        split = tuple(b - a for a, b in pairwise((0, *cuts, layers)))
        if min(split) >= min(LEAST_STAGE_LAYERS, layers):
            yield split

"""Which engines on which cards: the best set of footprints for a demand.

Throughput counts every engine; for latency the best engine counts fully and the others a tenth, so that spare cards are
used but never at the first engine's cost. Footprints and their order do not depend on memory or peer access
(`layouts`), and a candidate's score cannot fall when either grows: the best set's cannot either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from math import ceil

from qwenlab.planner.assignment import Assignment
from qwenlab.planner.demand import Demand
from qwenlab.planner.evaluate import Candidate, Evaluation, evaluate, finished
from qwenlab.planner.layouts import (
    Footprint,
    Interconnect,
    Place,
    footprints,
    kind_of,
    levelled,
    place_of,
    sorted_cards,
)
from qwenlab.planner.memory import budget
from qwenlab.planner.recipes import Knobs
from qwenlab.planner.shape import Card

CLEARLY = 1.02  # how much better a host must be without some of its cards to leave them idle
NEARLY = 0.85  # what fewer cards must promise by engines known so far to be searched: others may do better
OTHERS = 0.1  # what an engine beside the best one adds to the score where latency counts


@dataclass(frozen=True)
class Parallel:
    """Parallel sizes that the user fixed; None leaves them to the choice."""

    tp: int | None = None
    pp: int | None = None
    dp: int | None = None


@dataclass(frozen=True)
class Chosen:
    """One engine of the best set.

    Attributes:
        footprint: of the first replica.
        cards: in rank order, replica by replica.
        replicas: copies of the candidate behind one port.
    """

    footprint: Footprint
    cards: tuple[Card, ...]
    candidate: Candidate
    replicas: int = 1


@dataclass(frozen=True)
class Choice:
    """The best set of engines and the search it came out of.

    `with_all` is the best score with every card, where the search left a kind of them out for a better one.
    """

    engines: tuple[Chosen, ...]
    idle: tuple[Card, ...]
    score: float
    search: Search
    with_all: float | None = None


class Search:
    """All footprints of a host with their evaluations, and the best way to combine them."""

    def __init__(
        self,
        cards: Sequence[Card],
        interconnect: Interconnect,
        demand: Demand,
        knobs: Knobs,
        parallel: Parallel,
    ) -> None:
        self.cards = sorted_cards(cards, interconnect.pairs)
        self._levelled = levelled(self.cards)
        self.demand = demand
        self.parallel = parallel
        self._interconnect, self._knobs = interconnect, knobs
        self._rest: dict[int, tuple[float, tuple[Footprint, ...]]] = {0: (0.0, ())}

    @cached_property
    def evaluations(self) -> dict[Footprint, Evaluation]:
        """Every footprint that the user's parallel sizes allow."""
        return {
            footprint: self.evaluate(footprint)
            for footprint in footprints(self.cards)
            if self.parallel.tp in (None, footprint.tp) and self.parallel.pp in (None, footprint.pp)
        }

    def evaluate(self, footprint: Footprint, kept: int = 1, share: float = 1.0) -> Evaluation:
        """The best candidates on a footprint's cards, with `share` times its part of the requests."""
        alone = self.parallel.tp in (None, 1) and self.parallel.pp in (None, 1)
        assignment = Assignment(self.place(footprint), self.demand, self.streams(footprint, share), self._knobs)
        return evaluate(assignment, alone=alone, kept=kept)

    def why_not(self, footprint: Footprint) -> str:
        """What keeps a footprint from serving, with its cards' real names."""
        evaluation = self.evaluations[footprint]
        if evaluation.misfit is None:
            return evaluation.why or "it serves"
        cards = tuple(self.cards[member] for member in footprint.members)
        return budget(replace(evaluation.misfit, cards=cards)).why or "does not fit"

    def place(self, footprint: Footprint) -> Place:
        """The footprint's cards without identity."""
        return place_of(footprint, self._levelled, self._interconnect)

    def streams(self, footprint: Footprint, share: float = 1.0) -> int:
        """A footprint's share of the requests at once: by its number of cards, and for throughput by their bandwidth,
        as the gateway's weights deal them out."""
        part = share * sum(self._share(member) for member in footprint.members)
        return ceil(round(self.demand.concurrency * part, 6))

    def _share(self, member: int) -> float:
        if not self.demand.additive:
            return 1 / len(self.cards)
        return self.cards[member].bandwidth_gb_s / self._bandwidth

    @cached_property
    def _bandwidth(self) -> float:
        return sum(card.bandwidth_gb_s for card in self.cards)

    @cached_property
    def best_by_mask(self) -> dict[int, tuple[float, Footprint]]:
        """The best footprint of every card set that can serve at all."""
        best: dict[int, tuple[float, Footprint]] = {}
        for footprint, evaluation in self.evaluations.items():
            if evaluation.best is None:
                continue
            known = best.get(footprint.mask)
            if known is None or evaluation.best.score > known[0]:
                best[footprint.mask] = (evaluation.best.score, footprint)
        return best

    @cached_property
    def _by_lowest(self) -> dict[int, list[tuple[int, float, Footprint]]]:
        table: dict[int, list[tuple[int, float, Footprint]]] = {}
        for mask, (score, footprint) in self.best_by_mask.items():
            table.setdefault(mask & -mask, []).append((mask, score, footprint))
        return table

    def rest(self, mask: int) -> tuple[float, tuple[Footprint, ...]]:
        """The best sum of scores over disjoint footprints within `mask`, and those footprints."""
        if mask not in self._rest:
            lowest = mask & -mask
            best = self.rest(mask & ~lowest)  # this card stays idle
            for taken, score, footprint in self._by_lowest.get(lowest, ()):
                if taken & mask == taken:
                    value, others = self.rest(mask & ~taken)
                    if value + score > best[0]:
                        best = (value + score, (footprint, *others))
            self._rest[mask] = best
        return self._rest[mask]

    def with_first(self, first: Footprint) -> tuple[float, tuple[Footprint, ...]]:
        """Score and footprints of the host when the engine on `first`, which must be able to serve, comes first."""
        best = self.evaluations[first].best
        score = best.score if best is not None else 0.0
        value, others = self.rest(self.everything & ~first.mask)
        return score + (1.0 if self.demand.additive else OTHERS) * value, (first, *others)

    def without_some(self) -> Search | None:
        """The search over fewer kinds of the cards that promises most, where that is about as much as all of them.

        Only for throughput, where requests are dealt out over all cards: one that serves nobody, or much worse than its
        bandwidth lets expect, then costs more than it brings. What promises is told by the best engines that are known
        of the cards that stay, given the requests of those that go.
        """
        kinds = [tuple(group) for _, group in groupby(range(len(self.cards)), key=lambda at: kind_of(self.cards[at]))]
        if not self.demand.additive or self.parallel.dp is not None:
            return None
        kept = [kinds[:end] for end in range(len(kinds) - 1, 0, -1)]
        kept += [[*kinds[:out], *kinds[out + 1 :]] for out in range(len(kinds) - 1)]
        options = [[member for kind in some for member in kind] for some in kept]
        promised, members = max(((self._promise(option), option) for option in options), default=(0.0, []))
        if promised <= NEARLY * self.best()[0]:
            return None
        cards = [self.cards[member] for member in members]
        return Search(cards, self._interconnect, self.demand, self._knobs, self.parallel)

    def _promise(self, members: Sequence[int]) -> float:
        whole = sum(self._share(member) for member in members)
        _, engines = self.rest(sum(1 << member for member in members))
        found = (self.evaluate(engine, share=1 / whole).best for engine in engines)
        return sum(best.score for best in found if best is not None)

    @property
    def everything(self) -> int:
        """The set of all cards."""
        return (1 << len(self.cards)) - 1

    def best(self) -> tuple[float, tuple[Footprint, ...]]:
        """The best set of footprints; empty when nothing fits anywhere."""
        if self.parallel.dp is not None and self.parallel.dp > 1:
            return self._copies(self.parallel.dp)
        if self.demand.additive:
            return self.rest(self.everything)
        found: tuple[float, tuple[Footprint, ...]] = (0.0, ())
        for _, footprint in self.best_by_mask.values():
            option = self.with_first(footprint)
            if option[0] > found[0]:
                found = option
        return found

    def _copies(self, wanted: int) -> tuple[float, tuple[Footprint, ...]]:
        """The best `wanted` disjoint footprints that look alike."""
        alike: dict[Place, list[Footprint]] = {}
        for footprint, evaluation in self.evaluations.items():
            if evaluation.best is not None and footprint.pp == 1:
                alike.setdefault(self.place(footprint), []).append(footprint)
        found: tuple[float, tuple[Footprint, ...]] = (0.0, ())
        for group in alike.values():
            taken: list[Footprint] = []
            used = 0
            for footprint in group:
                if len(taken) < wanted and not footprint.mask & used:
                    taken.append(footprint)
                    used |= footprint.mask
            best = self.evaluations[group[0]].best
            more = wanted - 1 if self.demand.additive else OTHERS * (wanted - 1)
            if len(taken) == wanted and best is not None and best.score * (1 + more) > found[0]:
                found = (best.score * (1 + more), tuple(taken))
        return found


def choose(search: Search) -> Choice:
    """The best set of engines; copies of one engine share a port unless the user wants a single copy."""
    everything, with_all = search, None
    score, chosen = search.best()
    fewer = search.without_some()
    if fewer is not None and fewer.best()[0] > CLEARLY * score:
        search, with_all = fewer, score
        score, chosen = search.best()
    groups: dict[object, list[Footprint]] = {}
    for number, footprint in enumerate(chosen):
        mergeable = footprint.pp == 1 and search.parallel.dp != 1
        groups.setdefault(search.place(footprint) if mergeable else number, []).append(footprint)
    engines = []
    for group in groups.values():
        evaluation = search.evaluations[group[0]]
        if evaluation.best is None:
            continue
        cards = tuple(card for footprint in group for card in _in_rank_order(footprint, search.cards))
        engines.append(Chosen(group[0], cards, finished(evaluation.best), len(group)))
    used = {card.uuid for engine in engines for card in engine.cards}
    idle = tuple(card for card in everything.cards if card.uuid not in used)
    return Choice(tuple(engines), idle, score, search, with_all)


def _in_rank_order(footprint: Footprint, cards: tuple[Card, ...]) -> list[Card]:
    """The footprint's cards, in each tensor-parallel group the lowest compute capability first.

    vLLM asks device 0 what all cards can do, so the oldest must be it (rule lowest-capability-first).
    """
    members = [cards[member] for member in footprint.members]
    groups = (members[i : i + footprint.tp] for i in range(0, len(members), footprint.tp))
    return [card for group in groups for card in sorted(group, key=lambda card: card.compute_capability)]

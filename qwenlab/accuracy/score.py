"""How good the predictions are: share within a tolerance, and rank agreement (Kendall's tau) per machine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from qwenlab.accuracy.reports import Point
from qwenlab.planner.throughput.calibration import Constants


@dataclass(frozen=True)
class Ranking:
    """Configurations of one machine on one kind of text, ranked by measurement and by prediction."""

    machine: str
    corpus: str
    configurations: int
    tau: float
    concordant: int
    discordant: int


def within(found: Iterable[Point], tolerance: float, constants: Constants | None = None) -> float:
    """Share of points whose prediction lies within `tolerance` (0.25 = 25 %) of the measurement."""
    hits = [abs(point.predicted(constants) / point.value - 1) <= tolerance for point in found]
    return fmean(hits)


def rankings(found: Iterable[Point], least: int = 3, constants: Constants | None = None) -> list[Ranking]:
    """Kendall's tau-b for every machine and text with at least `least` different configurations.

    Repeated measurements of one configuration count once, with their mean.
    """
    groups: dict[tuple[str, str], dict[tuple[str, int], list[Point]]] = defaultdict(lambda: defaultdict(list))
    for point in found:
        groups[point.machine, point.corpus][point.configuration, point.depth].append(point)
    result = []
    for (machine, corpus), configurations in sorted(groups.items()):
        if len(configurations) < least:
            continue
        pairs = [(fmean(p.value for p in same), same[0].predicted(constants)) for same in configurations.values()]
        result.append(_ranking(machine, corpus, pairs))
    return result


def overall(found: Iterable[Ranking]) -> float:
    """One tau over all machines: concordant less discordant pairs, over all pairs that differ."""
    some = list(found)
    plus, minus = sum(r.concordant for r in some), sum(r.discordant for r in some)
    return (plus - minus) / (plus + minus)


def _ranking(machine: str, corpus: str, pairs: list[tuple[float, float]]) -> Ranking:
    plus = minus = ties_measured = ties_predicted = 0
    for (m1, p1), (m2, p2) in combinations(pairs, 2):
        sign = (m1 - m2) * (p1 - p2)
        if sign > 0:
            plus += 1
        elif sign < 0:
            minus += 1
        else:
            ties_measured += m1 == m2
            ties_predicted += p1 == p2 and m1 != m2
    total = len(pairs) * (len(pairs) - 1) / 2
    scale = ((total - ties_measured) * (total - ties_predicted)) ** 0.5
    return Ranking(machine, corpus, len(pairs), (plus - minus) / scale if scale else 0.0, plus, minus)

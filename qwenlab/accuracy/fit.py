"""Fit the constants of the throughput model: coordinate descent on the mean absolute log error, no more than that.

Only constants that the data can tell apart are moved. The fit sees half of the machines; the others judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import log
from statistics import fmean
from typing import Any

from qwenlab.accuracy.reports import Point
from qwenlab.planner.throughput.calibration import Constants

STEPS = (0.2, 0.1, 0.05, 0.02)
CAP = 0.5  # a report that is off by more than 65 % has another cause; it must not bend the constants

_MAPPINGS = {
    "reduce_us": ("nvlink", "peer", "host", "host-wsl2"),
    "host_ms": ("one", "several", "pass"),
    "compute_efficiency": ("16",),
}
_PLAIN = ("read_efficiency", "layer_us", "step_ms", "mtp_ms", "dflash_ms")


def held_out(machine: str) -> bool:
    """Whether a machine is kept from the fit: the H200, and of the rest those whose letters add up to an odd number."""
    return machine == "h200" or sum(machine.encode()) % 2 == 1


def loss(points: Iterable[Point], constants: Constants) -> float:
    """Mean absolute log ratio of prediction to measurement, each capped."""
    return fmean(min(CAP, abs(log(point.predicted(constants) / point.value))) for point in points)


def fit(points: Iterable[Point], start: Constants) -> Constants:
    """The constants that explain `points` (decode rates and step times) best, from `start`."""
    used = [
        point for point in points if (point.single_stream or point.corpus == "step") and not held_out(point.machine)
    ]
    best, lowest = start, loss(used, start)
    for size in STEPS:
        improved = True
        while improved:
            improved = False
            for change in _changes():
                for factor in (1 + size, 1 / (1 + size)):
                    candidate = change(best, factor)
                    if candidate.read_efficiency > 0.95 or candidate.compute_efficiency["16"] > 1:
                        continue
                    value = loss(used, candidate)
                    if value < lowest - 1e-5:
                        best, lowest, improved = candidate, value, True
    return best


def _changes() -> list[Callable[[Constants, float], Constants]]:
    plain = [_scale_plain(name) for name in _PLAIN]
    mapped = [_scale_mapped(name, key) for name, keys in _MAPPINGS.items() for key in keys]
    return plain + mapped


def _scale_plain(name: str) -> Callable[[Constants, float], Constants]:
    return lambda constants, factor: replace(constants, **{name: getattr(constants, name) * factor})


def _scale_mapped(name: str, key: str) -> Callable[[Constants, float], Constants]:
    def change(constants: Constants, factor: float) -> Constants:
        old: Mapping[str, float] = getattr(constants, name)
        changed: dict[str, Any] = {name: {**old, key: old[key] * factor}}
        return replace(constants, **changed)

    return change

"""Engines that start together and are measured in turn: starts take minutes, and a start disturbs what is measured."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import Enum
from typing import Any


class State(Enum):
    """Where an arm stands."""

    STARTING = "starting"
    UP = "up"
    DONE = "done"  # measured, failed or only started


class Wave:
    """The arms of one wave, in the order in which they are measured. Safe to use from many threads."""

    def __init__(self, arms: Sequence[dict[str, Any]]) -> None:
        self._changed = threading.Condition()
        self._states = {arm["name"]: State.STARTING for arm in arms}
        self._cards: dict[str, frozenset[int]] = {}

    def set(self, name: str, state: State, cards: Sequence[int] = ()) -> None:
        """Say how far an arm is; `cards` are those that it is measured on."""
        with self._changed:
            self._states[name] = state
            self._cards[name] = frozenset(cards)
            self._changed.notify_all()

    def wait_for_turn(self, name: str, limit_s: float) -> bool:
        """Wait until nothing starts any more and every earlier arm on a card of this one is done; False: too late."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_turn(name), limit_s)

    def wait_for_end(self, limit_s: float) -> None:
        """Wait until every arm is done: an engine that ends would disturb those still measured."""
        with self._changed:
            self._changed.wait_for(lambda: set(self._states.values()) == {State.DONE}, limit_s)

    def _is_turn(self, name: str) -> bool:
        if State.STARTING in self._states.values():
            return False
        order = list(self._states)
        earlier = (other for other in order[: order.index(name)] if self._states[other] is State.UP)
        return not any(self._cards[other] & self._cards[name] for other in earlier)


def stays(arm: dict[str, Any]) -> bool:
    """Whether an arm is measured in its wave; those of `pool`, or marked `passing`, do their work and end."""
    return bool(arm.get("wave")) and arm["what"] == "serve" and not arm.get("passing")


def waves(arms: Sequence[dict[str, Any]], gib: float) -> list[list[dict[str, Any]]]:
    """The arms by their `wave` (0 where they name none), which run one after another.

    Engines of one wave stay up until the last one is: together they must leave room for the largest of those that only
    start and end.

    Raises:
        ValueError: a wave does not fit cards of `gib` GiB.
    """
    found = [[arm for arm in arms if arm.get("wave", 0) == wave] for wave in sorted({a.get("wave", 0) for a in arms})]
    for members in found:
        if not members[0].get("wave"):
            continue
        passing = max((arm["need_gib"] for arm in members if not stays(arm)), default=0.0)
        for card in sorted({card for arm in members for card in arm.get("named_cards", ())}):
            staying = (arm["need_gib"] for arm in members if stays(arm) and card in arm["named_cards"])
            if (need := sum(staying) + passing) > gib:
                raise ValueError(f"wave {members[0]['wave']} needs {need:.0f} GiB of card {card}, which has {gib:.0f}")
    return found

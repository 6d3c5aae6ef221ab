"""What one engine replica is asked to do, and on which cards: the input of every evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qwenlab.planner.demand import LEAST_CONTEXT, Demand
from qwenlab.planner.layouts import Place
from qwenlab.planner.recipes import Knobs


@dataclass(frozen=True)
class Assignment:
    """Cards, and the part of the host's work that falls on them; hashable, so that evaluations can be shared.

    Attributes:
        place: the cards.
        demand: the workload of the whole host.
        streams: requests at once on these cards, their share of the demand.
        knobs: what the user fixed.
    """

    place: Place
    demand: Demand
    streams: int
    knobs: Knobs

    def on(self, place: Place, streams: int) -> Assignment:
        """The same workload on other cards."""
        return replace(self, place=place, streams=streams)

    @property
    def least_context(self) -> int:
        """Tokens that the window must hold."""
        return self.demand.context if self.demand.context_required else min(LEAST_CONTEXT, self.demand.context)

"""The host that a plan is made for: what it has, what its owner wants, and the cards that come into question."""

from __future__ import annotations

from dataclasses import dataclass

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.cards import LeftOut, cards_of
from qwenlab.planner.layouts import Interconnect
from qwenlab.planner.shape import Card
from qwenlab.settings import Settings


@dataclass(frozen=True)
class Host:
    """A host to plan for.

    Attributes:
        cards: that an engine may use.
        left_out: the others, each with the reason.
    """

    inventory: HostInventory
    settings: Settings
    cards: tuple[Card, ...]
    left_out: tuple[LeftOut, ...] = ()

    @property
    def interconnect(self) -> Interconnect:
        """How the cards reach each other."""
        return Interconnect(self.inventory.pairs, wsl2=self.inventory.wsl2)


def host_of(inventory: HostInventory, settings: Settings) -> Host:
    """The host with the cards that the settings name, or all that can be planned with."""
    cards, left_out = cards_of(inventory, settings.cards)
    return Host(inventory, settings, cards, left_out)

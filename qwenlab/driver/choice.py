"""Branch and module flavour from the cards' PCI ids, before any driver is there.

Rules: NVIDIA driver README (kernel_open: Blackwell takes the open module only, Turing and later may, earlier cards take
the proprietary one only; legacy list: 580 is the last branch of Maxwell, Pascal and Volta) and qwenlab/data/gpus.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from qwenlab.driver.packages import Flavour
from qwenlab.driver.state import Card
from qwenlab.driver.tables import BRANCHES, DEFAULT_BRANCH, FIRST_OPEN_ONLY_BRANCH
from qwenlab.gpu_data import ModuleFlavour, family_of


class Wishes(Protocol):
    """The settings that matter here (qwenlab/settings/driver.py)."""

    @property
    def asked_branch(self) -> int | None:
        """Branch that the settings name."""

    @property
    def driver_flavour(self) -> str:
        """`auto`, `open` or `proprietary`."""

    @property
    def driver_allow_drop(self) -> bool:
        """Cards may be lost."""


@dataclass(frozen=True)
class Choice:
    """Branch and flavour, or why there is none; `notes` are worth telling either way."""

    branch: int = DEFAULT_BRANCH
    flavour: Flavour = "open"
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def choose(cards: tuple[Card, ...], wishes: Wishes) -> Choice:
    """The driver for these cards."""
    branch = wishes.asked_branch or DEFAULT_BRANCH
    too_old = [card for card in cards if (last := last_branch(card)) is not None and last < min(BRANCHES)]
    dropped = [card for card in cards if (last := last_branch(card)) is not None and last < branch]
    kept = tuple(card for card in cards if card not in dropped)
    if not kept and dropped:
        last = max(last_branch(card) or 0 for card in dropped)
        if too_old:
            return Choice(branch, reasons=(f"{_names(dropped)}: no driver that CUDA 13 runs with supports it",))
        return Choice(
            branch,
            reasons=(f"driver {branch} drives none of the cards ({_names(dropped)}): {last} is their last branch",),
        )
    if dropped and not wishes.driver_allow_drop:
        return Choice(
            branch,
            reasons=(
                f"driver {branch} would drop {_names(dropped)}"
                + (f", whose last branch is {min(last_branch(card) or 0 for card in dropped)}" if not too_old else "")
                + ": take the card out, "
                + ("" if branch == DEFAULT_BRANCH else "leave qwen_driver_branch at 580, ")
                + "or accept the loss (qwen_driver_allow_drop = True)",
            ),
        )
    notes = (f"driver {branch} drops {_names(dropped)}, as qwen_driver_allow_drop says",) if dropped else ()
    return _with_flavour(branch, kept, wishes, notes)


def last_branch(card: Card) -> int | None:
    """The last branch that drives a card; None while current ones do, or when the card is not known."""
    family = family_of(card.device_id)
    return family.last_driver_branch if family else None


def module_of(card: Card) -> ModuleFlavour:
    """The module that drives a card; a card that is not in the table is newer than the table, so open only."""
    family = family_of(card.device_id)
    return family.module if family else ModuleFlavour.OPEN


def drives(flavour: Flavour, card: Card) -> bool:
    """Whether the module of this flavour drives the card."""
    return module_of(card) in (ModuleFlavour.EITHER, ModuleFlavour(flavour))


def _with_flavour(branch: int, cards: tuple[Card, ...], wishes: Wishes, notes: tuple[str, ...]) -> Choice:
    only_open = [card for card in cards if module_of(card) is ModuleFlavour.OPEN]
    only_closed = [card for card in cards if module_of(card) is ModuleFlavour.PROPRIETARY]
    if only_open and only_closed:
        # the open module drives the newer card and leaves the older one without a driver
        if not wishes.driver_allow_drop:
            return Choice(
                branch,
                reasons=(
                    f"no kernel module drives both {_names(only_open)} (open only) and {_names(only_closed)} "
                    "(proprietary only): take one out, or give up the older one (qwen_driver_allow_drop = True)",
                ),
            )
        notes = (*notes, f"the open module leaves {_names(only_closed)} without a driver")
        only_closed = []
    flavour: Flavour = "proprietary" if only_closed else "open"
    if wishes.driver_flavour != "auto":
        asked: Flavour = "open" if wishes.driver_flavour == "open" else "proprietary"
        against = only_open if asked == "proprietary" else only_closed
        if against:
            return Choice(
                branch,
                reasons=(
                    f"{_names(against)}: only the {flavour} kernel module drives it; "
                    f"set qwen_driver_flavour = '{flavour}' or leave it at 'auto'",
                ),
            )
        flavour = asked
    if flavour == "proprietary" and branch >= FIRST_OPEN_ONLY_BRANCH:
        return Choice(
            branch,
            reasons=(f"driver {branch} has no proprietary kernel module; use qwen_driver_branch = 580 or 595",),
        )
    return Choice(branch, flavour, notes=notes)


def _names(cards: list[Card]) -> str:
    return ", ".join(card.label for card in cards)

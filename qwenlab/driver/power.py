"""Power limits: what each card gets, from a setting and the range that the card accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

UNIT = "qwen-power.service"


@dataclass(frozen=True)
class PowerCard:
    """A card as nvidia-smi tells it, in watts; None where the card does not say (laptops, some consumer cards)."""

    uuid: str
    name: str
    limit_w: float | None = None
    default_w: float | None = None
    min_w: float | None = None
    max_w: float | None = None


@dataclass(frozen=True)
class PowerLimits:
    """UUID to watts as they will be set, the default to go back to, and what a person should know."""

    watts: dict[str, float]
    defaults: dict[str, float]
    notes: tuple[str, ...] = ()


def parse(lines: list[str]) -> tuple[PowerCard, ...]:
    """Cards from `nvidia-smi --query-gpu=uuid,name,power.limit,power.default_limit,power.min_limit,power.max_limit
    --format=csv,noheader,nounits`; other lines (a failure's words) are passed over."""
    found = []
    for line in lines:
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 6 and parts[0].startswith("GPU-"):
            limit, default, low, high = (_watts(part) for part in parts[2:])
            found.append(PowerCard(parts[0], parts[1], limit, default, low, high))
    return tuple(found)


def limits(
    cards: tuple[PowerCard, ...],
    wanted: float | Mapping[str, float] | str | None,
    advised: Callable[[str], float | None],
) -> PowerLimits:
    """What each card gets; a wish outside a card's range is moved to its edge, and that is told.

    Args:
        wanted: the setting: a number for every card, numbers by model name, `advised`, or None for nothing.
        advised: the planner's advice by product name.
    """
    watts: dict[str, float] = {}
    notes = []
    for card in cards:
        wish = _wish(card, wanted, advised)
        if wish is None:
            continue
        if card.min_w is None or card.max_w is None:
            notes.append(f"{card.name} ({card.uuid}) does not let its power be limited")
            continue
        given = min(max(wish, card.min_w), card.max_w)
        if given != wish:
            notes.append(
                f"{card.name} ({card.uuid}) takes {card.min_w:g} to {card.max_w:g} W: {given:g} W instead of {wish:g} W"
            )
        watts[card.uuid] = given
    if isinstance(wanted, Mapping):
        unmatched = [model for model in wanted if not any(_is(model, card.name) for card in cards)]
        notes += [f"qwen_power_limit_w names {model!r}, which this host does not have" for model in unmatched]
    defaults = {card.uuid: card.default_w for card in cards if card.default_w is not None}
    return PowerLimits(watts, defaults, tuple(notes))


def unit(limits: PowerLimits) -> str:
    """The systemd unit that sets the limits at every boot; stopping it restores the defaults.

    A limit is lost with every reload of the driver, and belongs to the card (UUID), not to its place.
    """
    start = "".join(f"ExecStart=/usr/bin/nvidia-smi -i {uuid} -pl {watt:g}\n" for uuid, watt in limits.watts.items())
    stop = "".join(
        f"ExecStop=-/usr/bin/nvidia-smi -i {uuid} -pl {limits.defaults[uuid]:g}\n"
        for uuid in limits.watts
        if uuid in limits.defaults
    )
    return (
        "[Unit]\nDescription=Power limits of the cards\n"
        "After=nvidia-persistenced.service\nWants=nvidia-persistenced.service\nBefore=qwen.target qwen.service\n\n"
        f"[Service]\nType=oneshot\nRemainAfterExit=yes\n{start}{stop}\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def _wish(
    card: PowerCard, wanted: float | Mapping[str, float] | str | None, advised: Callable[[str], float | None]
) -> float | None:
    if wanted is None:
        return None
    if isinstance(wanted, Mapping):
        # the longest name wins: "RTX 3090 Ti" before "RTX 3090"
        fitting = sorted((model for model in wanted if _is(model, card.name)), key=len)
        return float(wanted[fitting[-1]]) if fitting else None
    if isinstance(wanted, str):
        return advised(card.name)
    return float(wanted)


def _is(model: str, name: str) -> bool:
    """Whether a product name holds the words of a model, and no other model's suffix."""
    asked, have = set(model.casefold().split()), set(name.casefold().split())
    return asked <= have and not (have & {"ti", "super"}) - asked


def _watts(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]", "[Not Supported]"

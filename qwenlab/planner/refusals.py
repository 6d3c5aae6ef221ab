"""Why a host cannot be served, with a stable code, and what would make it possible."""

from __future__ import annotations

from dataclasses import replace

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.capabilities import AMPERE
from qwenlab.planner.cards import kept_gib
from qwenlab.planner.checks import TAKEN_GIB, host_errors, unreadable
from qwenlab.planner.choose import Choice, Parallel, Search, choose
from qwenlab.planner.demand import demand_of
from qwenlab.planner.host import Host
from qwenlab.planner.layouts import TENSOR_SIZES
from qwenlab.planner.plan import Refusal
from qwenlab.planner.recipes import knobs_of
from qwenlab.planner.shape import Card
from qwenlab.settings import Settings

USUAL_SIZES_GIB = (8, 10, 12, 16, 20, 24, 32, 48, 80, 96)
WITHOUT_CARDS = "to try qwenlab without one: qwen_engine = 'cpu', see README"
SHOWN_MIB = 400  # of the nominal size that no program gets


def _with_way_out(refusal: Refusal) -> Refusal:
    """A host without cards may still be there to try qwenlab out."""
    if refusal.code != "no-gpu" or WITHOUT_CARDS in refusal.text:
        return refusal
    return refusal.model_copy(update={"text": f"{refusal.text.rstrip('.')} ({WITHOUT_CARDS})"})


def refusals_of(host: Host, choice: Choice, free: Choice | None) -> tuple[Refusal, ...]:
    """Why `choice` has no engine, the most telling reason first; `free`: the choice without the user's overrides."""
    inventory, settings, cards = host.inventory, host.settings, host.cards
    if not inventory.gpus:
        unread = unreadable(inventory)
        text = "no NVIDIA card was found on this host" + (f"; {unread}" if unread else f" ({WITHOUT_CARDS})")
        found = host_errors(inventory) or (Refusal(code="no-gpu", text=text),)
        return tuple(_with_way_out(one) for one in found)
    if not cards:
        listed = "; ".join(f"card {one.uuid}: {one.why}" for one in host.left_out)
        codes = {one.code for one in host.left_out}
        code = codes.pop() if len(codes) == 1 else "no-usable-card"
        return (Refusal(code=code, text=f"no card can be planned with: {listed}"),)
    if free is not None and free.engines:
        return (Refusal(code="override-impossible", text=_override_text(settings, choice)),)
    old = [card for card in cards if card.compute_capability < AMPERE]
    if len(old) == len(cards):
        names = ", ".join(f"{card.name} ({card.compute_capability[0]}.{card.compute_capability[1]})" for card in old)
        text = f"{names}: the model needs bfloat16 attention kernels, compute capability 8.0 or newer"
        return (Refusal(code="silicon-too-old", text=text),)
    if settings.context is not None:
        longest = _longest(host)
        if longest:
            text = (
                f"no engine on these cards holds {settings.context:,} tokens; the longest context that fits is "
                f"{longest:,} (qwen_context)"
            )
            return (Refusal(code="context-too-long", text=text),)
    return (Refusal(code="too-little-memory", text=_memory_text(host, choice)),)


def _override_text(settings: Settings, choice: Choice) -> str:
    search = choice.search
    reasons = dict.fromkeys(search.why_not(footprint) for footprint in search.evaluations)
    why = "; ".join(list(reasons)[:2]) or "no layout of these cards has that form"
    return f"the settings leave no plan ({why}); without them one exists: loosen them one by one"


def _longest(host: Host) -> int:
    """The longest window over all layouts, whatever its speed; 0 when nothing fits at all."""
    search = _free_search(replace(host, settings=host.settings.model_copy(update={"context": None})))
    windows = [
        candidate.shape.max_model_len
        for footprint in search.evaluations
        for candidate in search.evaluate(footprint, kept=20).candidates
    ]
    return max(windows, default=0)


def _memory_text(host: Host, choice: Choice) -> str:
    search, cards = choice.search, host.cards
    share = kept_gib(host.inventory)  # nobody can end what takes this
    emptied = tuple(replace(card, in_use_gib=share) for card in cards)
    held = [max(0.0, card.in_use_gib - share) for card in cards]
    have = ", ".join(
        f"{card.name} with {max(0.0, card.memory_gib - card.in_use_gib):.1f} GiB free"
        + (f" of {card.memory_gib - share:.1f}, {taken:.1f} held by other programs" if taken >= TAKEN_GIB else "")
        for card, taken in zip(cards, held, strict=True)
    )
    largest = max(search.evaluations, key=lambda footprint: len(footprint.members))
    short = f"{have}: too little ({search.why_not(largest)})"
    if max(held) >= TAKEN_GIB and _plannable(replace(host, cards=emptied)):
        return f"{short}. What would fit: these very cards, once those programs have ended (nvidia-smi lists them)"
    return f"{short}. What would fit: {' or '.join(_would_fit(host.settings, emptied[0])) or 'larger cards'}"


def _would_fit(settings: Settings, like: Card) -> list[str]:
    """The smallest single card, and the fewest cards like this one, that would be planned."""
    found = []
    for size in USUAL_SIZES_GIB:
        bigger = _resized(like, size - SHOWN_MIB / 1024)
        if _plannable(Host(HostInventory(), settings, (bigger,))):
            found.append(f"one card with {size} GiB")
            break
    for count in TENSOR_SIZES[1:]:
        several = tuple(_resized(like, like.memory_gib, index) for index in range(count))
        if _plannable(Host(HostInventory(), settings, several)):
            found.append(f"{count} cards like this one")
            break
    return found


def _resized(card: Card, memory_gib: float, index: int = 0) -> Card:
    return replace(card, memory_gib=memory_gib, index=index, uuid=f"{card.uuid}-{index}")


def _plannable(host: Host) -> bool:
    return bool(choose(_free_search(host)).engines)


def _free_search(host: Host) -> Search:
    """The search over all layouts, whatever parallel sizes the settings fix."""
    return Search(host.cards, host.interconnect, demand_of(host.settings), knobs_of(host.settings), Parallel())

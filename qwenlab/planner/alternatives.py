"""What the choice was made against, in words and numbers: other recipes, other layouts, idle cards, overrides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from qwenlab.planner.choose import Choice, Chosen, Search
from qwenlab.planner.evaluate import Candidate
from qwenlab.planner.layouts import Footprint
from qwenlab.planner.plan import Rejected
from qwenlab.planner.shape import Card, EngineShape

SHOWN_RECIPES = 4
SHOWN_LAYOUTS = 6


def rejected(choice: Choice, chosen: Chosen) -> tuple[Rejected, ...]:
    """The candidates that lost against one chosen engine, best first: recipes on its cards, then layouts."""
    return (*_recipes(choice.search, chosen), *_layouts(choice))


def form(footprint: Footprint) -> str:
    """A layout's short name: TP=2, PP=2, PP=2 x TP=2, one card."""
    parts = [f"PP={footprint.pp}"] if footprint.pp > 1 else []
    if footprint.tp > 1:
        parts.append(f"TP={footprint.tp}")
    return " x ".join(parts) or "one card"


def recipe_text(shape: EngineShape) -> str:
    """Weights, drafter, KV data type and backend of a shape in a few words."""
    draft = "no drafter"
    if shape.speculation is not None:
        name = {"mtp": "MTP", "dflash": "DFlash2"}[shape.speculation.method]
        draft = f"{name} {shape.speculation.tokens}"
    split = f", {','.join(map(str, shape.partition))} layers" if shape.partition else ""
    return f"{shape.checkpoint}, {draft}, {shape.kv_dtype} KV on {shape.attention_backend}{split}"


def card_names(cards: Iterable[Card]) -> str:
    """Cards in words: "2x RTX 3090, RTX A4000"."""
    counts = Counter(card.name.removeprefix("NVIDIA ").removeprefix("GeForce ") for card in cards)
    return ", ".join(f"{count}x {name}" if count > 1 else name for name, count in counts.items())


def speed_text(candidate: Candidate, copies: int = 1) -> str:
    """Decode rates of a candidate, its window, and its score."""
    rates = f"{candidate.single_tok_s:.0f} tok/s for one stream"
    streams = candidate.streams * copies
    if streams > 1:
        rates += f", {candidate.aggregate_tok_s * copies:.0f} for {streams}"
    return f"{rates}, {candidate.shape.max_model_len:,} tokens of context"


def _recipes(search: Search, chosen: Chosen) -> list[Rejected]:
    best = chosen.candidate
    others = search.evaluate(chosen.footprint, kept=SHOWN_RECIPES).candidates
    return [
        Rejected(
            layout=f"{form(chosen.footprint)}: {recipe_text(other.shape)}",
            why=f"score {other.score:.1f} against {best.score:.1f}: {speed_text(other)}",
        )
        for other in others[1:]
    ]


def _layouts(choice: Choice) -> list[Rejected]:
    """The best set of engines for every form of first engine that is not in the chosen set."""
    search = choice.search
    used = {form(engine.footprint) for engine in choice.engines}
    best: dict[str, tuple[float, tuple[Footprint, ...]]] = {}
    misfits: dict[str, str] = {}
    for footprint, evaluation in search.evaluations.items():
        name = form(footprint)
        if name in used:
            continue
        if evaluation.best is None:
            misfits.setdefault(name, search.why_not(footprint))
            continue
        value = search.with_first(footprint)
        if name not in best or value[0] > best[name][0]:
            best[name] = value
    lost = [
        Rejected(layout=_set_text(search, engines), why=_lost_text(search, score, engines, choice))
        for score, engines in sorted(best.values(), key=lambda value: -value[0])
    ]
    unfit = [Rejected(layout=name, why=why) for name, why in misfits.items() if name not in best]
    return (lost + unfit)[:SHOWN_LAYOUTS]


def _set_text(search: Search, engines: tuple[Footprint, ...]) -> str:
    return " + ".join(f"{form(one)} on {card_names(search.cards[m] for m in one.members)}" for one in engines)


def _lost_text(search: Search, score: float, engines: tuple[Footprint, ...], choice: Choice) -> str:
    first = search.evaluations[engines[0]].best
    detail = f": {speed_text(first)} on the first engine ({recipe_text(first.shape)})" if first else ""
    return f"score {score:.1f} against {choice.score:.1f}{detail}"


def idle_text(choice: Choice, card: Card) -> str:
    """Why a card is left idle."""
    search = choice.search
    if card not in search.cards:
        return (
            f"the other cards alone answer more requests: with it the host scores {choice.with_all or 0.0:.1f} against "
            f"{choice.score:.1f}"
        )
    place = search.cards.index(card)
    alone = next((footprint for footprint in search.evaluations if footprint.members == (place,)), None)
    if alone is None:
        return "the parallel sizes that the settings fix leave it over"
    if search.evaluations[alone].best is not None:
        return "the engines that the settings ask for do not need it"
    joined = [
        (search.with_first(f)[0], f) for f, e in search.evaluations.items() if place in f.members and e.best is not None
    ]
    reason = f"alone it cannot serve: {search.why_not(alone)}"
    if joined:
        score, footprint = max(joined, key=lambda item: item[0])
        others = card_names(search.cards[m] for m in footprint.members if m != place)
        reason += f"; joined with {others} ({form(footprint)}) the host scores {score:.1f} against {choice.score:.1f}"
    return reason

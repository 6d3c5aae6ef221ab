"""A card's memory as parts of a bar: shared by the terminal's and the page's drawing."""

from __future__ import annotations

from dataclasses import dataclass

from rich.text import Text

from qwenlab.planner.plan import RankMemory


@dataclass(frozen=True)
class Part:
    """One kind of use: its field in `RankMemory`, a word, a glyph for terminals without colour, colours."""

    field: str
    label: str
    glyph: str
    terminal: str
    page: str


PARTS = (
    Part("in_use", "others", "x", "red", "#b5544d"),
    Part("weights", "weights", "█", "blue", "#3f6fb5"),
    Part("kv", "KV pool", "▓", "green", "#4b9a5f"),
    Part("workspace", "workspace", "▒", "yellow", "#d0a03c"),
    Part("graphs", "graphs", "░", "magenta", "#8c64b0"),
    Part("margin", "margin", "·", "white", "#9aa3ad"),
)
FREE = Part("free", "free", " ", "default", "#e7eaee")


@dataclass(frozen=True)
class Segment:
    """One part with its GiB and its share of the card."""

    part: Part
    gib: float
    share: float


def segments(memory: RankMemory) -> tuple[Segment, ...]:
    """The parts of one card, what is free last; shares add up to one where the card is not overcommitted."""
    found = [(part, float(getattr(memory, part.field))) for part in PARTS]
    free = max(0.0, memory.total - sum(gib for _, gib in found))
    return tuple(Segment(part, gib, gib / memory.total) for part, gib in (*found, (FREE, free)))


def cells(memory: RankMemory, width: int) -> tuple[tuple[Part, int], ...]:
    """Characters per part for a bar of `width`; rounding goes to the largest remainders, so the sum is exact."""
    parts = segments(memory)
    exact = [segment.share * width for segment in parts]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: exact[i] - counts[i], reverse=True)
    for place in by_remainder[: max(0, width - sum(counts))]:
        counts[place] += 1
    return tuple((segment.part, count) for segment, count in zip(parts, counts, strict=True) if count)


def memory_line(rank: RankMemory, name: str, name_width: int, bar_width: int) -> Text:
    """One card's bar for a terminal, the name in full before it and claimed of total GiB behind it."""
    line = Text(f"{name:<{name_width}} ")
    line.append("|", style="dim")
    for part, count in cells(rank, bar_width):
        line.append(part.glyph * count, style=part.terminal)
    line.append("|", style="dim")
    claimed = sum(float(getattr(rank, part.field)) for part in PARTS)
    return line.append(f" {claimed:.1f} of {rank.total:.1f}")


def memory_legend() -> Text:
    """What the glyphs of the bars stand for."""
    line = Text()
    for part in (*PARTS, FREE):
        line.append(f"{part.glyph if part.glyph.strip() else '_'} ", style=part.terminal).append(f"{part.label}  ")
    return line

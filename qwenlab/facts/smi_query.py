"""`nvidia-smi --query-gpu=... --format=csv`: one line a card, under a heading that names the columns.

Without the heading (`noheader`) the values are told by their form: of several sizes the largest is the card's memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from qwenlab.facts import smi_values
from qwenlab.facts.readings import CardReading, ParseError, Reading
from qwenlab.facts.terminal import plain
from qwenlab.pci_address import bus_id

_UNIT = re.compile(r"\s*\[[A-Za-z%/]+\]$")


def _capability(text: str) -> tuple[int, int] | None:
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text)
    return (int(match[1]), int(match[2])) if match else None


# Columns by the name that --query-gpu takes (nvidia-smi --help-query-gpu), each with what it fills.
_COLUMNS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "index": ("index", smi_values.whole),
    "name": ("name", smi_values.word),
    "gpu_name": ("name", smi_values.word),
    "uuid": ("uuid", smi_values.word),
    "gpu_uuid": ("uuid", smi_values.word),
    "pci.bus_id": ("bus_id", bus_id),
    "gpu_bus_id": ("bus_id", bus_id),
    "compute_cap": ("compute_capability", _capability),
    "memory.total": ("memory_total_mib", smi_values.whole),
    "memory.used": ("memory_used_mib", smi_values.whole),
    "memory.reserved": ("memory_reserved_mib", smi_values.whole),
    "compute_mode": ("compute_mode", smi_values.word),
    "mig.mode.current": ("mig_enabled", smi_values.switch),
    "ecc.mode.current": ("ecc_enabled", smi_values.switch),
    "display_active": ("display_active", smi_values.switch),
    "persistence_mode": ("persistence", smi_values.switch),
    "pcie.link.gen.current": ("generation_now", smi_values.whole),
    "pcie.link.gen.gpucurrent": ("generation_now", smi_values.whole),
    "pcie.link.gen.max": ("generation_max", smi_values.whole),
    "pcie.link.gen.gpumax": ("generation_max", smi_values.whole),
    "pcie.link.gen.hostmax": ("generation_slot", smi_values.whole),
    "pcie.link.width.current": ("width_now", smi_values.whole),
    "pcie.link.width.max": ("width_max", smi_values.whole),
    "power.limit": ("limit_w", smi_values.number),
    "power.default_limit": ("default_w", smi_values.number),
    "power.min_limit": ("min_w", smi_values.number),
    "power.max_limit": ("max_w", smi_values.number),
}
# Values that no other column has the form of.
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("uuid", re.compile(r"GPU-[0-9A-Fa-f-]{4,}")),
    ("pci.bus_id", re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]")),
    ("name", re.compile(r"(?:NVIDIA|GeForce|Tesla|Quadro|TITAN|GRID|RTX) ?\S.*")),
    ("driver_version", re.compile(r"[0-9]{3}\.[0-9]{2,3}(?:\.[0-9]{2})?")),
    ("compute_cap", re.compile(r"[3-9]\.[0-9]|1[0-9]\.[0-9]")),
)
_SIZE = re.compile(r"[0-9]+ MiB")
_IDENTIFYING = {"index", "name", "uuid", "bus_id"}
_FAULTED = ("name", "memory.total", "memory.used", "uuid", "pci.bus_id", "compute_mode")


def is_query(text: str) -> bool:
    """Whether a line of the text is such a heading, or a card without one."""
    return any(_heading(line) or _told_by_form(line) for line in plain(text).split("\n"))


def parse_query(text: str) -> Reading:
    """Read the lines. Raises `ParseError` where no line is a card."""
    lines = plain(text).split("\n")
    position = next((number for number, line in enumerate(lines) if _heading(line)), None)
    damage: list[str] = []
    if position is None:
        rows = [values for line in lines if (values := _told_by_form(line))]
    else:
        rows = _under(_heading(lines[position]), lines[position + 1 :], damage)
    if not rows:
        raise ParseError("nvidia-smi --query-gpu: no line is a card")
    cards = [_card(number, values) for number, values in enumerate(rows)]
    if len({card.index for card in cards}) != len(cards):
        raise ParseError("nvidia-smi --query-gpu: two cards with one index")
    return Reading(
        cards=tuple(sorted(cards, key=lambda card: card.index or 0)),
        driver=next((word for row in rows if (word := smi_values.word(row.get("driver_version")))), None),
        damage=tuple(damage),
        lost=smi_values.lost_handles(text),
    )


def _under(columns: list[str], lines: list[str], damage: list[str]) -> list[dict[str, str]]:
    rows = []
    for line in lines:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == len(columns):
            rows.append(dict(zip(columns, fields, strict=True)))
        elif "," in line:
            damage.append(f"a line of {len(fields)} values under {len(columns)} columns: {line.strip()[:60]!r}")
    return rows


def _told_by_form(line: str) -> dict[str, str]:
    """The values of a card's line that has no heading over it, by column; nothing where it is no card's."""
    fields = [field.strip() for field in line.split(",")]
    found = {name: field for name, form in _FORMS for field in fields if form.fullmatch(field)}
    sizes = [field for field in fields if _SIZE.fullmatch(field)]
    if sizes:
        found["memory.total"] = max(sizes, key=lambda size: smi_values.whole(size) or 0)
    if "name" not in found or not found.keys() & {"uuid", "pci.bus_id", "memory.total"}:
        return {}
    return found | ({"index": fields[0]} if fields[0].isdigit() else {})


def _heading(line: str) -> list[str]:
    """The columns' names where the line is a heading, else nothing."""
    names = [_UNIT.sub("", field.strip()).lower() for field in line.split(",")]
    known = {_COLUMNS[name][0] for name in names if name in _COLUMNS}
    return names if len(names) > 1 and len(known) > 1 and known & _IDENTIFYING else []


def _card(position: int, values: dict[str, str]) -> CardReading:
    found: dict[str, Any] = {"index": position}
    for name, text in values.items():
        field, read = _COLUMNS.get(name, (None, None))
        if field and read and (value := read(text)) is not None:
            found[field] = value
    faults = (smi_values.fault(values.get(name)) for name in _FAULTED)
    return CardReading(**found, fault=next((fault for fault in faults if fault), None))

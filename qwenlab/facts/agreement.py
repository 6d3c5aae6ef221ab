"""Whether NVML, nvidia-smi and sysfs tell the same about the same cards. Standard library only."""

from __future__ import annotations

from collections.abc import Callable

from qwenlab.facts.nvml_dump import parse_nvml
from qwenlab.facts.pci import parse_sysfs
from qwenlab.facts.readings import CardReading, ParseError, Reading
from qwenlab.facts.recording import Recording
from qwenlab.facts.smi_xml import parse_xml
from qwenlab.facts.topology import parse_topology

# What each source can know of a card and its neighbours; readings that move by themselves (memory in use) are left out.
_SHARED = (
    "uuid", "bus_id", "device_id", "name", "architecture", "memory_total_mib", "memory_reserved_mib", "display_active",
    "ecc_enabled", "mig_enabled", "generation_max", "width_max", "width_now", "limit_w", "default_w", "min_w", "max_w",
    "persistence", "bar1_total_mib",
)  # fmt: skip
_ON_THE_BUS = ("bus_id", "device_id", "generation_max", "width_max", "width_now")

_PARSERS: dict[str, Callable[[str], Reading]] = {
    "nvml": parse_nvml,
    "smi_xml": parse_xml,
    "pci": lambda text: parse_sysfs(text).reading,
}


def compare(recording: Recording) -> tuple[list[str], bool]:
    """(report lines, whether all sources agree). A source that is absent is named and does not disagree."""
    lines: list[str] = []
    nvml = _reading(recording, "nvml", lines)
    smi = _reading(recording, "smi_xml", lines)
    bus = _reading(recording, "pci", lines)
    agree = True
    for name, other, fields in (("nvidia-smi", smi, _SHARED), ("sysfs", bus, _ON_THE_BUS)):
        base, base_name = (nvml, "NVML") if nvml else (smi, "nvidia-smi")
        if base is None or other is None or base is other:
            continue
        differences = _differences(base, other, fields)
        agree &= not differences
        lines.append(f"{base_name} and {name}: {len(base.cards)} cards, " + ("agree" if not differences else "differ"))
        lines += [f"  {text}" for text in differences]
    lines_topology, same = _links(recording, nvml)
    return lines + lines_topology, agree and same


def _reading(recording: Recording, name: str, lines: list[str]) -> Reading | None:
    text = recording.text(name)
    if text is None:
        lines.append(f"{name}: absent")
        return None
    try:
        reading = _PARSERS[name](text)
    except ParseError as error:
        lines.append(f"{name}: unreadable, {error}")
        return None
    if reading.failure:
        lines.append(f"{name}: {reading.failure.code}, {reading.failure.text}")
    return reading if reading.cards else None


def _differences(base: Reading, other: Reading, fields: tuple[str, ...]) -> list[str]:
    found = []
    by_bus = {card.bus_id: card for card in other.cards}
    if {card.bus_id for card in base.cards} != set(by_bus):
        found.append(f"cards at {_places(base.cards)} against {_places(other.cards)}")
    for card in base.cards:
        twin = by_bus.get(card.bus_id)
        for name in fields if twin else ():
            a, b = getattr(card, name), getattr(twin, name)
            if a is not None and b is not None and not _same(name, a, b):
                found.append(f"{card.bus_id} {name}: {a} against {b}")
    return found


def _same(name: str, a: object, b: object) -> bool:
    """Equal; sizes may differ by the one MiB that nvidia-smi rounds up and NVML's bytes do not."""
    if name.endswith("_mib") and isinstance(a, int) and isinstance(b, int):
        return abs(a - b) <= 1
    return a == b


def _links(recording: Recording, nvml: Reading | None) -> tuple[list[str], bool]:
    text = recording.text("topo")
    if nvml is None or text is None:
        return [], True
    try:
        topology = parse_topology(text)
    except ParseError as error:
        return [f"topo: unreadable, {error}"], False
    mine = {(pair.a, pair.b): pair for pair in nvml.pairs}
    differences = [
        f"  {pair.a}-{pair.b}: {mine[pair.a, pair.b].lanes} NVLinks, {mine[pair.a, pair.b].ancestor} by NVML; "
        f"{pair.lanes} NVLinks, {pair.ancestor} by topo -m"
        for pair in topology.pairs
        if (pair.a, pair.b) in mine
        and (
            mine[pair.a, pair.b].lanes != pair.lanes
            or (pair.ancestor is not None and mine[pair.a, pair.b].ancestor != pair.ancestor)
        )
    ]
    word = "differ" if differences else "agree"
    return [f"NVML and topo -m: {len(topology.pairs)} pairs, {word}", *differences], not differences


def _places(cards: tuple[CardReading, ...]) -> str:
    return ", ".join(sorted(card.bus_id or "?" for card in cards)) or "none"

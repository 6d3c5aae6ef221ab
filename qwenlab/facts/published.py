"""Machines in YAML: those that people published (their `topo -m`, `nvidia-smi` box, a card list), and made-up ones."""

from __future__ import annotations

import re
from typing import Any

import yaml

from qwenlab.facts.readings import CardReading, ParseError, Reading
from qwenlab.facts.recording import Recording
from qwenlab.facts.smi_values import fault, switch, whole
from qwenlab.pci_address import bus_id

_CAPTURES = {
    "topo_matrix": "topo",
    "nvidia_smi": "smi_table",
    "nvidia_smi_L": "smi_list",
    "query_csv": "smi_query",
    "p2p_matrix": "p2p_read",
    "dmesg": "kernel",
    "lspci": "lspci",
    "proc_driver_nvidia_version": "driver_version",
}
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Fa-f/-]+")  # not one that was made unreadable
_MOST = 64  # cards of a host
_OF_ONE = ("count", "index", "uuid", "bus_id")
_SEVERAL = re.compile(r"([0-9]{1,3}) ?[x×*] ?(\S.*)")  # as people write it: 2x RTX 3090
_MEMORY = ("vram_mib", "vram_mib_spec", "memory_mib")
_MEMORY_GIB = ("vram_gib", "vram", "memory", "memory_gib")
_A_CARD = "a name (RTX 3090, 2x RTX 3090) or a mapping ({name: RTX 3060, vram_gib: 12})"
_MIB = {"MIB": 1, "MB": 1, "": 1, "GIB": 1024, "GB": 1024, "G": 1024}
_HEALTHY = ("", "ok", "healthy", "good", "normal", "active", "none")
_GIVEN = ("gpus", "driver", "cuda", "os")


def parse_published(text: str) -> Recording:
    """Read one file's text. Raises `ParseError` when it is no YAML mapping with any capture or a list of cards."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ParseError(" ".join(str(error).split())) from None
    if not isinstance(raw, dict):
        raise ParseError("a mapping with gpus, topo_matrix, nvidia_smi is expected, e.g. `gpus: [2x RTX 3090]`")
    if not any(raw.get(key) for key in (*_CAPTURES, "gpus")):
        raise ParseError(
            f"it holds none of {', '.join(('gpus', *_CAPTURES))}; `gpus: [2x RTX 3090]` would be a machine"
        )
    if not any(raw.get(key) for key in _CAPTURES):
        given_cards(raw)  # nothing else tells of cards: a list that cannot be read is no machine
    captures = {name: str(raw[key]) for key, name in _CAPTURES.items() if raw.get(key)}
    if "<nvidia_smi_log" in captures.get("smi_table", ""):  # what `nvidia-smi -q -x` prints
        captures["smi_xml"] = captures.pop("smi_table")
    return Recording(captures, {}, {key: raw[key] for key in _GIVEN if raw.get(key) is not None})


def given_cards(given: dict[str, Any]) -> Reading:
    """The card list of a published recording. Raises `ParseError` when it is no list of mappings."""
    rows = given.get("gpus", [])
    if not isinstance(rows, list) or not all(isinstance(row, (dict, str)) for row in rows):
        raise ParseError(f"gpus: a list of cards is expected, each {_A_CARD}")
    cards = [card for row in rows for card in _rows(row)]
    numbers = [row.get("index") for row in cards]
    if len(set(numbers)) != len(numbers):  # a card copied with its number
        cards = [{**row, "index": position} for position, row in enumerate(cards)]
    driver = re.match(r"[0-9]+(\.[0-9]+)+", str(given.get("driver") or ""))
    return Reading(
        cards=tuple(_card(position, row) for position, row in enumerate(cards)),
        driver=driver.group(0) if driver else None,
    )


def _rows(row: dict[str, Any] | str) -> list[dict[str, Any]]:
    """One mapping a card: a name alone is one, and `count` of a kind, or `2x` before its name, are as many."""
    if isinstance(row, str):
        several = _SEVERAL.fullmatch(row.strip())
        row = {"name": several[2], "count": int(several[1])} if several else {"name": row}
    if (count := row.get("count")) is None:
        return [row]
    if not isinstance(count, int) or not 1 <= count <= _MOST:
        raise ParseError(f"gpus: a count from 1 to {_MOST} is expected, not {count!r}")
    kept = row.keys() - _OF_ONE if count > 1 else row.keys()
    return [{key: value for key, value in row.items() if key in kept} for _ in range(count)]


def _card(position: int, row: dict[str, Any]) -> CardReading:
    def first(*keys: str) -> str | None:
        return next((str(row[key]) for key in keys if row.get(key) is not None), None)

    def flag(key: str) -> bool | None:
        value = row.get(key)
        return value if isinstance(value, bool) else switch(first(key))

    state = first("state")
    capability = re.fullmatch(r"([0-9]+)\.([0-9]+)", first("compute_cap", "compute_cap_spec") or "")
    memory = _mib(first(*_MEMORY)) or _mib(first(*_MEMORY_GIB), "GIB")
    if memory is None and (size := first(*_MEMORY, *_MEMORY_GIB)) is not None:
        raise ParseError(f"gpus: {size!r} is no size of a card's memory; write vram_gib: 24, or leave it out")
    return CardReading(
        index=int(row["index"]) if isinstance(row.get("index"), int) else position,
        uuid=uuid if _UUID.fullmatch(uuid := first("uuid") or "") else None,
        bus_id=bus_id(first("bus_id")),
        name=first("name"),
        compute_capability=(int(capability[1]), int(capability[2])) if capability else None,
        memory_total_mib=memory,
        memory_used_mib=whole(first("vram_used_mib")),
        display_active=flag("display_active"),
        ecc_enabled=flag("ecc"),
        mig_enabled=flag("mig"),
        compute_mode=first("compute_mode"),
        generation_now=whole(first("pcie_gen_current", "pcie_gen")),
        generation_max=whole(first("pcie_gen_max")),
        width_now=whole(first("pcie_width_current", "pcie_width")),
        width_max=whole(first("pcie_width_max")),
        limit_w=whole(first("power_limit_w")),
        persistence=flag("persistence"),
        fault=None if state is None or state.strip().lower() in _HEALTHY else fault(state) or state,
    )


def _mib(text: str | None, unit: str = "MIB") -> int | None:
    """A size with or without its unit, in MiB."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)", (text or "").strip())
    factor = _MIB.get(match[2].upper() or unit) if match else None
    return int(float(match[1]) * factor) if match and factor else None

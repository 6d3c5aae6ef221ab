"""Recordings without what identifies a machine or its owner: serials, UUIDs, host names, addresses, part of the log.

The same value becomes the same replacement in every capture, so that sources still match each other.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace

from qwenlab.facts.recording import Recording

_NAMESPACE = uuid.UUID("6f1d0c4e-2f0a-5b8e-9a55-7b1f6a0e5d11")
_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_BARE_UUID = re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_FIELDS = re.compile(
    r"<(serial|pdi|chassis_serial_number|module_serial_number|gpu_fabric_guid|clusterUuid|host_id|board_id)>([^<]+)<"
)
_ADDRESS = re.compile(r"\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b|\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)
_DROPPED = ("cmdline", "nvml_errors", "boot_id", "mounts")
_ADDRESS_FREE = ("os_release", "packages", "modinfo", "topo", "df")


def scrubbed(recording: Recording) -> Recording:
    """The recording with every identifying value replaced; captures that only identify are dropped."""
    seen: dict[str, str] = {}
    host = recording.captures.get("hostname", "").strip()
    captures = {}
    for name, text in recording.captures.items():
        if name in _DROPPED:
            continue
        clean = _UUID.sub(lambda match: f"{match[1]}-{_like(match[0].lower(), seen)}", text)
        clean = _FIELDS.sub(lambda match: f"<{match[1]}>{_field(match[1], match[2], seen)}<", clean)
        if name not in _ADDRESS_FREE:
            clean = _ADDRESS.sub("192.0.2.1", clean)
        if host:
            clean = re.sub(rf"\b{re.escape(host)}\b", "host", clean)
        captures[name] = clean
    return replace(recording, captures=captures)


def identifying(text: str, before: Recording) -> list[str]:
    """Values of `before` that `text` still holds: UUIDs and serials; the check that a fixture may be published."""
    values: set[str] = set()
    for capture in before.captures.values():
        values |= {match[0] for match in _BARE_UUID.finditer(capture)}
        values |= {match[2] for match in _FIELDS.finditer(capture) if _is_value(match[2])}
    return sorted(value for value in values if value in text)


def _like(value: str, seen: dict[str, str]) -> str:
    """A UUID that depends on the order of appearance only, so that a fixture says nothing about its origin."""
    return seen.setdefault(value, str(uuid.uuid5(_NAMESPACE, f"card {len(seen)}")))


def _field(name: str, value: str, seen: dict[str, str]) -> str:
    if not _is_value(value):
        return value
    number = seen.setdefault(f"{name} {value}", str(len(seen) + 1))
    return f"0x{int(number):016x}" if value.startswith("0x") else f"16500000{number.zfill(5)}"


def _is_value(text: str) -> bool:
    return len(text.strip()) > 4 and any(character.isdigit() for character in text)

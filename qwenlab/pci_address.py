"""PCI addresses in one spelling. Standard library only, since the parsers of recordings use it."""

from __future__ import annotations

import re

_BUS_ID = re.compile(r"^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-9a-f]))?$")


def bus_id(text: str | None) -> str | None:
    """A PCI address as `0000:01:00.0` from any spelling in use ("00000000:01:00.0", "01:00.0", "0000:01:00")."""
    match = _BUS_ID.match((text or "").strip().lower())
    if not match:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or '0'}"

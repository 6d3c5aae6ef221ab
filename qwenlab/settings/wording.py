"""What is wrong with a value, in words for whoever wrote it: what was expected, what was given, what to write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# What a value must be that has to match a pattern of the settings.
PATTERNS: tuple[tuple[str, str], ...] = (
    (r"^/[^\s]*[^/\s]$", "an absolute path without spaces and without / at its end, e.g. /srv/qwen"),
    (r"^/\S+$", "an absolute path without spaces, e.g. /srv/wheels"),
    (r"^/\S*$", "an absolute path without spaces, e.g. /mnt/models"),
    (r"^https?://\S*[^/\s]$", "an address that starts with https:// or http:// and does not end with /"),
    (r"^https?://\S+[^/\s]$", "an address that starts with https:// or http:// and does not end with /"),
    (r"^https?://\S+$", "an address that starts with http:// or https://, e.g. http://proxy.example.org:3128"),
    (r"^(https?|file)://\S+$", "an address that starts with https://, http:// or file://"),
    (r"^[\w.-]+/[\w.-]+$", "a repository of the hub, owner/name"),
    (r"^[0-9a-f]{40}$", "a commit: all of its 40 digits, 0-9 and a-f"),
    (r"^[0-9A-Fa-f]{40}$", "a fingerprint: 40 digits, 0-9 and A-F, without spaces"),
    (r"^[0-9a-f]{64}$", "a SHA-256: 64 digits, 0-9 and a-f"),
    (r"^\d{3}(\.\d+)+$", "a whole driver version, e.g. 580.126.09"),
    (r"^3\.\d{1,2}$", "a Python release, e.g. 3.12"),
    (r"^[a-z_][a-z0-9_-]{0,30}$", "a user's name: small letters, digits, _ and -, no digit first, 31 at most"),
    (r"^(https://\S+|[^:\s][^:]*)$", "a folder, an archive file or an https address"),
)
_PATTERNS = dict(PATTERNS)
_SWITCHES = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
_LONGEST = 60


def worded(fault: Mapping[str, Any], *, secret: bool) -> str:
    """The text of one of pydantic's faults.

    Args:
        fault: an item of `ValidationError.errors()`.
        secret: the value may not be repeated.
    """
    text = str(fault["msg"]).removeprefix("Value error, ")
    kind, value = str(fault["type"]), fault.get("input")
    path = [str(part) for part in fault["loc"]]
    deeper = f" (at {'.'.join(path[1:])})" if len(path) > 1 else ""
    if secret or deeper or kind == "value_error":
        return text + deeper
    given = repr(value)
    if len(given) > _LONGEST or "@" in given:  # an address may hold a password
        return _PATTERNS.get(str(fault.get("ctx", {}).get("pattern")), text)
    if kind == "string_pattern_mismatch":
        words = _PATTERNS.get(str(fault.get("ctx", {}).get("pattern")))
        return f"{given} is not {words}" if words else f"{text}, not {given}"
    if not kind.endswith(("_type", "literal_error")):
        return text
    instead = _instead(kind, value, text)
    return f"{text}, not {given}" + (f"; write {instead!r}" if instead is not None else "")


def _instead(kind: str, value: object, text: str) -> object:
    """What the value was probably to be; None where that is not plain."""
    if kind == "list_type" and isinstance(value, (str, int)) and not isinstance(value, bool):
        return [part.strip() for part in value.split(",")] if isinstance(value, str) else [value]
    if kind == "string_type" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    word = str(value).strip()
    if kind == "bool_type":
        return _SWITCHES.get(word.lower())
    if kind in ("int_type", "literal_error") and re.fullmatch(r"[0-9]{1,9}", word) and isinstance(value, str):
        number = int(word)
        return number if kind == "int_type" or str(number) in re.findall(r"[0-9]+", text) else None
    if kind == "int_type" and (match := re.fullmatch(r"([0-9]{1,6}) ?[kK]", word)):
        return int(match.group(1)) * 1024
    if kind == "float_type" and (match := re.match(r"[0-9]{1,9}(\.[0-9]+)?", word)):
        return float(match.group(0))
    if kind == "literal_error" and f"'{word.lower()}'" in text and word != word.lower():
        return word.lower()
    return None

"""The one reader behind every `--from`: plan, render and probe take the same things.

What it reads: the inventory as JSON, the document that `probe --json` prints, a published recording (YAML), a
recorded directory, and standard input (`-`) for all but the directory.
"""

from __future__ import annotations

import json
import re
import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from math import inf
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.published import parse_published
from qwenlab.facts.readings import ParseError
from qwenlab.facts.recording import Recording, load
from qwenlab.host_inventory import SCHEMA_VERSION, HostInventory

STDIN = "-"
BELOW_ZERO = ("numa_node",)  # -1 is the kernel's word for none
KINDS = (
    "an inventory or the whole output of `probe --json`, a YAML file (`gpus: [2x RTX 3090]`, or a published "
    "recording), a recorded directory; - is stdin"
)


class UnreadableError(ValueError):
    """The source holds no host; the text names the source and says why, in one line."""


def read_inventory(source: str) -> HostInventory:
    """The host that `source` describes. Raises UnreadableError."""
    found = read_source(source)
    return build_inventory(found) if isinstance(found, Recording) else found


def read_source(source: str) -> HostInventory | Recording:
    """A recording where `source` is one, else the inventory that it holds.

    Args:
        source: path of a file or a directory, or `-` for standard input.

    Raises:
        UnreadableError: it cannot be read, or is none of the forms.
    """
    if not source:
        raise UnreadableError("--from names no file")
    name = "standard input" if source == STDIN else source
    try:
        if source == STDIN:
            return _parsed(sys.stdin.read())
        path = Path(source)
        if path.is_dir():
            return load(path)
        return _parsed(_decoded(path.read_bytes()))
    except OSError as error:
        raise UnreadableError(f"cannot read {name}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{name} is not an inventory or a recording: it is not UTF-8 text") from None
    except RecursionError:
        raise UnreadableError(f"{name} is not an inventory or a recording: it is nested too deep") from None
    except ParseError as error:
        words = " ".join(str(error).removeprefix(source).lstrip(": ").split())
        raise UnreadableError(f"{name} is not an inventory or a recording: {words}") from None


def _decoded(raw: bytes) -> str:
    """UTF-8, or UTF-16 with its mark as PowerShell's `>` writes it; line ends as they come."""
    return raw.decode("utf-16" if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "utf-8-sig")


def _parsed(text: str) -> HostInventory | Recording:
    if not text.strip():
        raise ParseError("it is empty; a mapping or a JSON object is expected")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        if re.match(r'\s*\{\s*"', text):  # as YAML a comma too many would pass, and mean something else
            raise ParseError(_faulty(error)) from None
        return _published(text)
    except ValueError as error:  # a number of thousands of digits
        raise ParseError(str(error).split(":")[0]) from None
    if _halves(document):
        raise ParseError("it holds half a character (a lone surrogate)")
    if not isinstance(document, dict):
        raise ParseError("a JSON object is expected")
    if isinstance(document.get("inventory"), dict):
        return _inventory(document["inventory"])
    if document.keys() & {"schema_version", "parse", "pairs", "hostname"}:
        return _inventory(document)
    return _published(text)


def _faulty(error: json.JSONDecodeError) -> str:
    """Where JSON stops being JSON."""
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"the JSON breaks off in line {error.lineno}: the file was cut, or is still being written"
    return f"the JSON is damaged in line {error.lineno}, column {error.colno} ({error.msg})"


def _published(text: str) -> Recording:
    try:
        return parse_published(text)
    except ParseError:
        raise
    except ValueError as error:  # a number or a date that YAML takes for one and Python does not
        raise ParseError(str(error).split(":")[0]) from None


def _halves(document: object) -> bool:
    """Whether a text in it cannot be written: JSON may spell a surrogate without its other half."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _twice(inventory: HostInventory) -> str | None:
    """What two cards have in common that one card alone can have."""
    for field in ("index", "uuid", "pci_bus_id"):
        values = [value for gpu in inventory.gpus if (value := getattr(gpu, field)) is not None]
        for value in values:
            if values.count(value) > 1:
                return f"two cards have {field} {value}"
    return None


def _impossible(value: object, place: str = "") -> str | None:
    """Where a number is that nothing on a host can have: below zero, or not finite."""
    if isinstance(value, dict):
        parts = [(f"{place}.{key}".lstrip("."), one) for key, one in value.items() if key not in BELOW_ZERO]
    elif isinstance(value, list):
        parts = [(f"{place}.{number}", one) for number, one in enumerate(value)]
    elif isinstance(value, (int, float)) and not 0 <= value < inf:
        return f"{place} is {value}"
    else:
        return None
    return next((found for at, one in parts if (found := _impossible(one, at)) is not None), None)


def _inventory(document: dict[str, Any]) -> HostInventory:
    if "gpus" not in document:
        raise ParseError("the inventory names no list of cards (gpus)")
    try:
        found = HostInventory.model_validate(document)
    except ValidationError as error:
        if (written := document.get("schema_version")) not in (None, SCHEMA_VERSION):
            raise ParseError(f"its schema_version is {written}, and this qwenlab reads {SCHEMA_VERSION}") from None
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        more = f", and {error.error_count() - 1} more" if error.error_count() > 1 else ""
        raise ParseError(f"{where} - {first['msg']}{more}") from None
    if (wrong := _impossible(document) or _twice(found)) is not None:
        raise ParseError(wrong)
    return found

"""Scalars as nvidia-smi writes them: units, "N/A" in its many spellings, the words of a card that does not answer."""

from __future__ import annotations

import re

from qwenlab.facts.readings import Failure, Lost
from qwenlab.pci_address import bus_id

_MISSING = re.compile(
    r"^\[?\s*(n/?a|not supported|none|unknown|not available|requested functionality has been deprecated"
    r"|insufficient permissions|not found|function not found|unknown error"
    r"|err!|gpu is lost|gpu requires reset)?\s*\]?$",
    re.IGNORECASE,
)
_FAULT = re.compile(r"err!|gpu is lost|unknown error|gpu requires reset|fallen off the bus", re.IGNORECASE)
_NUMBER = re.compile(r"^\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*(MiB|W|x|%)?\s*$")

# Most telling first. Words of nvidia-smi and NVML; the exit status is not trusted, a wrapper may lose it.
_FAILURES: tuple[tuple[str, str], ...] = (
    ("driver_library_mismatch", r"driver/library version mismatch|RM has detected an NVML/RM version mismatch"),
    ("module_not_loaded", r"couldn.t communicate with the NVIDIA driver|Driver Not Loaded|driver is not loaded"),
    ("no_devices", r"^No (?:supported )?(?:devices|GPUs) (?:were )?found"),
    ("gpu_access_blocked", r"GPU access blocked by the operating system"),
    ("nvml_missing", r"couldn.t find libnvidia-ml|NVML Shared Library Not Found|libnvidia-ml\.so"),
    ("no_permission", r"Failed to initialize NVML: Insufficient Permissions|not have (?:sufficient )?permissions?"),
    ("nvml_failed", r"Failed to initialize NVML|^(?:Error: )?Unknown Error\s*\Z"),
    ("smi_missing", r"nvidia-smi: (?:command )?not found|command not found: nvidia-smi|nvidia-smi' not found|"
                    r"No such file or directory|failed to run command|nvidia-smi\S* is not recognized"),
    ("smi_broken", r"^(?:\S*sh: )?.{0,60}(?:Segmentation fault|Exec format error|Input/output error|Bus error|"
                   r"Permission denied)|^(?:Killed|Aborted|Terminated)\b"),
)  # fmt: skip
_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu)\s*([0-9A-Fa-f:.]+)?\s*:\s*([^\n]*)", re.IGNORECASE
)


def missing(text: str | None) -> bool:
    """Whether a value is absent, in any of nvidia-smi's spellings."""
    return text is None or bool(_MISSING.match(text.strip()))


def fault(text: str | None) -> str | None:
    """The fault that a value tells of ("ERR!", "GPU is lost"), None for a healthy or merely absent value."""
    match = _FAULT.search(text or "")
    return match.group(0) if match else None


def number(text: str | None) -> float | None:
    """A non-negative number with or without its unit, None for anything else."""
    match = _NUMBER.match(text or "")
    return float(match.group(1)) if match else None


def whole(text: str | None) -> int | None:
    """Like `number`, as an integer."""
    value = number(text)
    return None if value is None else int(value)


def word(text: str | None) -> str | None:
    """A text value, None when absent."""
    return None if text is None or missing(text) else text.strip()


def switch(text: str | None) -> bool | None:
    """Enabled/Disabled, On/Off, Yes/No."""
    return {"enabled": True, "on": True, "yes": True, "disabled": False, "off": False, "no": False}.get(
        (text or "").strip().lower()
    )


def failure(text: str) -> Failure | None:
    """The reason why nvidia-smi or NVML answered with words instead of an inventory."""
    for code, pattern in _FAILURES:
        if re.search(pattern, text, re.IGNORECASE | re.MULTILINE):
            return Failure(code, " ".join(text.split())[:300])
    return None


def lost_handles(text: str) -> tuple[Lost, ...]:
    """Cards for which nvidia-smi got no handle ("GPU1: 0000:46:00.0: Unknown Error"), with its reason."""
    found = []
    for match in _HANDLE.finditer(text):
        first = (match.group(1) or "").rstrip(":.")
        rest = match.group(2).strip()
        address = bus_id(first)
        if address is None and (address := bus_id(rest.split(" ")[0].rstrip(":"))) is not None:
            rest = rest.partition(" ")[2]
        why = re.split(r"\.\s|\.$", rest.strip())[0].strip()
        found.append(Lost(int(first) if first.isdigit() else None, address, why or None))
    return tuple(found)

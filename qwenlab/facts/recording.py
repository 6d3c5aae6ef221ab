"""A recording: the raw captures of one host, as gathered, on disk, or published by somebody else.

A capture is a text with a name (`smi_xml`, `topo`, `pci` ...) and the exit status of the command that printed it.
Standard library only.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwenlab.facts.readings import ParseError

# Captures with a file name of their own in a recording's directory; every other one is NAME.txt.
_FILE_NAMES = {"smi_xml": "smi.xml", "smi_table": "smi.txt", "smi_query": "smi.csv", "nvml": "nvml.json"}
# What `gather.sh` and nvidia-smi's own forms are called; a directory with none of them is no recording.
_KNOWN = {
    *(
        "smi_xml",
        "smi_table",
        "smi_list",
        "smi_query",
        "nvml",
        "topo",
        "p2p_read",
        "p2p_write",
        "pci",
        "lspci",
        "proc_gpus",
    ),
    *("kernel", "driver_version", "module_version", "modules", "modinfo", "devices", "hostname", "os_release"),
    *("uname", "services"),
}
_CAPTURE_NAMES = {file_name: name for name, file_name in _FILE_NAMES.items()}
_STATUS_FILE = "status.json"
_MARK = "@@@qwenlab "
_HEAD = re.compile(r"^@@@qwenlab ([a-z0-9_]{1,40}) (-?[0-9]{1,4})$")
_END = "@@@qwenlab end"


@dataclass(frozen=True)
class Recording:
    """Captures by name, exit statuses where known, and `given`: facts stated by whoever made the recording."""

    captures: dict[str, str]
    statuses: dict[str, int] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """A capture that holds anything at all."""
        text = self.captures.get(name)
        return text if text is not None and text.strip() else None


def from_output(output: str) -> Recording:
    """Read what `gather.sh` printed. Raises `ParseError` when the output is cut or is something else."""
    captures: dict[str, str] = {}
    statuses: dict[str, int] = {}
    name: str | None = None
    lines: list[str] = []
    ended = False
    for line in output.split("\n"):
        if line.startswith(_MARK):
            if name is not None:
                captures[name] = "\n".join(lines)
            if line == _END:
                ended = True
                break
            head = _HEAD.match(line)
            if head is None:
                raise ParseError(f"gathered output: {line[:60]!r} is no capture head")
            name, lines = head.group(1), []
            statuses[name] = int(head.group(2))
        elif name is not None:
            lines.append(line)
    if not ended:
        raise ParseError("gathered output: the end is missing; the command was cut off or did not run")
    return Recording(captures, statuses)


def load(directory: Path) -> Recording:
    """Read a directory with capture files (`smi.xml` and `topo.txt` are enough); `ParseError` if none is there."""
    captures: dict[str, str] = {}
    statuses: dict[str, int] = {}
    for path in sorted(directory.iterdir()):
        if path.name == _STATUS_FILE:
            try:
                statuses = {str(name): int(status) for name, status in json.loads(path.read_text()).items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise ParseError(f"{path}: {error}") from None
        elif path.name in _CAPTURE_NAMES or path.suffix == ".txt":
            text = path.read_text(encoding="utf-8", errors="replace")
            captures[_CAPTURE_NAMES.get(path.name, path.stem)] = text
    if not captures.keys() & _KNOWN:
        raise ParseError(f"{directory} holds no capture: expected smi.xml, topo.txt, pci.txt or the like")
    return Recording(captures, statuses)


def save(recording: Recording, directory: Path) -> tuple[Path, ...]:
    """Write one file per capture that holds anything, and the exit statuses; returns the paths."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, text in sorted(recording.captures.items()):
        if text:
            path = directory / _FILE_NAMES.get(name, f"{name}.txt")
            path.write_text(text, encoding="utf-8")
            paths.append(path)
    status = directory / _STATUS_FILE
    status.write_text(json.dumps(recording.statuses, indent=1, sort_keys=True) + "\n")
    return (*paths, status)

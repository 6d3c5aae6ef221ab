"""What lines of the journal mean: from vLLM's and the kernel's words to what is wrong and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from qwenlab.facts import xids
from qwenlab.service.symptoms import SYMPTOMS


@dataclass(frozen=True)
class Finding:
    """Attributes:
    code: stable name; text: what is wrong and what to do; line: the line that says so.
    """

    code: str
    text: str
    line: str


def diagnose(lines: Iterable[str]) -> list[Finding]:
    """What the lines say, each kind once with its latest line, in the order of first appearance."""
    found: dict[str, Finding] = {}
    for line in lines:
        for symptom in SYMPTOMS:
            match = symptom.pattern.search(line)
            if match:
                code, text = symptom.code, symptom.text or match.groupdict().get("text") or ""
                if number := match.groupdict().get("xid"):
                    code, text = f"xid-{number}", _xid(int(number))
                found[code] = Finding(code, text, line.strip())
                break
    return list(found.values())


def _xid(code: int) -> str:
    return f"the driver reported Xid {xids.told(code)}{': reboot' if code in xids.FATAL else ''}"

"""What lines of the journal mean: from vLLM's and the kernel's words to what is wrong and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Attributes:
    code: stable name; text: what is wrong and what to do; line: the line that says so.
    """

    code: str
    text: str
    line: str


@dataclass(frozen=True)
class _Symptom:
    code: str
    pattern: re.Pattern[str]
    text: str


_SYMPTOMS = (
    # the first that fits a line wins. Xid numbers: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors)
    _Symptom(
        "xid-79", re.compile(r"Xid.*: 79,"), "a card fell off the bus: check power cables, riser and heat; reboot"
    ),
    _Symptom(
        "xid-48",
        re.compile(r"Xid.*: (?:48|94|95),"),
        "a card's memory has an error that ECC cannot mend: reboot; replace",
    ),
    _Symptom(
        "xid-63",
        re.compile(r"Xid.*: (?:63|64),"),
        "a card retires or remaps memory rows: reboot once to let it take effect",
    ),
    _Symptom(
        "xid-119",
        re.compile(r"Xid.*: (?:119|120),"),
        "a card's firmware (GSP) does not answer: reboot; update the driver",
    ),
    _Symptom("xid-74", re.compile(r"Xid.*: 74,"), "NVLink error: reseat the bridge"),
    _Symptom(
        "xid-31",
        re.compile(r"Xid.*: (?:13|31|43|45),"),
        "a program on a card made a wrong access and was stopped: the engine restarts; report it when it comes again",
    ),
    _Symptom("xid", re.compile(r"NVRM: Xid.*: \d+,"), "the driver reported an error of a card: look its Xid number up"),
    _Symptom(
        "host-memory",
        re.compile(r"oom-kill|Out of memory: Killed process|killed by the OOM killer|result 'oom-kill'"),
        "the host's memory ran out and the kernel ended the engine: free memory, or raise qwen_memory_percent",
    ),
    _Symptom(
        "card-memory",
        re.compile(r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory"),
        "a card's memory ran out: something else uses the card, or the plan is too tight; run plays/calibrate.py",
    ),
    _Symptom(
        "kv-too-small",
        re.compile(
            r"To serve at least one request|No available memory for the cache blocks|larger than the available KV"
        ),
        "the KV cache does not hold one request of the planned length: lower qwen_context",
    ),
    _Symptom(
        "stall",
        re.compile(r"liveness: no answer, and no token|Watchdog timeout"),
        "the engine generated nothing although it ran: systemd restarts it; report it when it comes again",
    ),
    _Symptom("nonsense", re.compile(r"liveness: degenerate output"), "the engine computed nonsense and was restarted"),
    _Symptom("refused", re.compile(r"refused: (?P<text>.*)"), ""),
    _Symptom(
        "nccl",
        re.compile(r"NCCL (?:error|WARN.*(?:timeout|failed))|ncclUnhandledCudaError|ncclSystemError"),
        "the cards could not talk to each other: run plays/verify.py with qwen_verify_peers = True",
    ),
    _Symptom("import", re.compile(r"(?:ImportError|ModuleNotFoundError): "), "the release is broken: deploy again"),
    _Symptom("disk", re.compile(r"No space left on device"), "a disk is full: free room"),
    _Symptom(
        "start-limit",
        re.compile(r"Start request repeated too quickly"),
        "too many failed starts: mend the cause, then systemctl reset-failed 'qwen-engine@*'; systemctl start qwen",
    ),
)


def diagnose(lines: Iterable[str]) -> list[Finding]:
    """What the lines say, each kind once with its latest line, in the order of first appearance."""
    found: dict[str, Finding] = {}
    for line in lines:
        for symptom in _SYMPTOMS:
            match = symptom.pattern.search(line)
            if match:
                text = symptom.text or match.group("text")
                found[symptom.code] = Finding(symptom.code, text, line.strip())
                break
    return list(found.values())

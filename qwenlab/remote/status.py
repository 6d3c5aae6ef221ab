#!/usr/bin/env python3
"""status.py: how this host serves, as one line of JSON. Reads only. Standard library only, needs root for the key."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from qwenlab.remote.common.documents import document
from qwenlab.remote.common.engine_api import address, metrics, total
from qwenlab.remote.gating.look import Gate
from qwenlab.remote.gating.release import check_release

ETC = Path("/etc/qwen")
KEY = ETC / "secrets/api_key"
UNIT = Path("/etc/systemd/system/qwen-engine@.service")
PLACE = re.compile(r"^ExecStart=(/\S*/current)/venv/", re.MULTILINE)
VERIFY = Path("/var/lib/qwenlab/verify")
FAILED = Path("/var/lib/qwenlab/generations/failed.json")
JOURNAL_LINES = "400"
KERNEL = re.compile(
    r"NVRM: Xid|oom-kill:.*qwen|NVRM:.* fallen off the bus|uvm encountered global fatal error"
    r"|NVRM:.*The GPU likely needs to be reset|RmInitAdapter failed"
)
KERNEL_LINES = 20
SAMPLE_S = 2.0
PROPERTIES = ("ActiveState", "SubState", "StatusText", "NRestarts", "Result", "ActiveEnterTimestampMonotonic")
CARD_FIELDS = ("uuid", "name", "temperature.gpu", "power.draw", "power.limit", "memory.used", "memory.total")
GAUGES = {
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "kv_use": "vllm:kv_cache_usage_perc",
}
TOKENS = "vllm:generation_tokens_total"


def ask(*command: str) -> str:
    """What a program prints; empty when it is missing or does not end."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def unit(name: str) -> dict[str, Any]:
    """State of an engine's unit."""
    text = ask("systemctl", "show", "-p", ",".join(PROPERTIES), f"qwen-engine@{name}.service")
    known = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    since = int(known.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
    up = known.get("ActiveState") == "active"
    return {
        "state": known.get("ActiveState", "unknown"),
        "substate": known.get("SubState", ""),
        "says": known.get("StatusText", ""),
        "restarts": int(known.get("NRestarts") or 0),
        "result": known.get("Result", ""),
        "up_s": round(time.monotonic() - since) if up and since else None,
    }


def page(engine: str, key: str | None) -> str:
    """An engine's /metrics; empty when it does not answer."""
    try:
        return metrics(engine, key)
    except OSError:
        return ""


def load(before: str, after: str, seconds: float) -> dict[str, float | None]:
    """What an engine does, from its metrics at two moments."""
    first, second = total(before, TOKENS), total(after, TOKENS)
    rate = None if first is None or second is None else round((second - first) / seconds, 1)
    return {"tokens_s": rate, **{name: total(after, metric) for name, metric in GAUGES.items()}}


def cards() -> list[dict[str, str]]:
    """Temperature, power and memory of every card."""
    text = ask("nvidia-smi", f"--query-gpu={','.join(CARD_FIELDS)}", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [
        {field: row[place] for place, field in enumerate(CARD_FIELDS)} for row in rows if len(row) == len(CARD_FIELDS)
    ]


def driver() -> str | None:
    """Version of the NVIDIA driver; None when it does not answer."""
    rows = ask("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()
    return rows[0] if rows and rows[0][:1].isdigit() else None


def current_place(unit: Path = UNIT) -> str | None:
    """The link to the release that the engines' unit starts: settings may have asked for another place since."""
    try:
        found = PLACE.search(unit.read_text())
    except OSError:
        return None
    return found.group(1) if found else None


def current_release(place: str | None) -> str | None:
    """The name of the release behind that link."""
    try:
        return os.readlink(place).rsplit("/", 1)[-1] if place else None
    except OSError:
        return None


def release_problems(place: str | None) -> list[str]:
    """What the gate would say of that release at an engine's next start."""
    return [problem.text for problem in check_release(Gate({"release": place}))] if place else []


def kernel() -> list[str]:
    """The kernel's lines of this boot, with their times, on cards' errors and on engines that it ended for memory."""
    lines = ask("journalctl", "-k", "-b", "-o", "short-iso", "--no-pager").splitlines()
    return [line for line in lines if KERNEL.search(line)][-KERNEL_LINES:]


def status() -> dict[str, Any]:
    """Everything at once."""
    plan = document(ETC / "plan.json")
    key = KEY.read_text().strip() if KEY.exists() else None
    engines = []
    for engine in plan.get("engines", []):
        gate = document(ETC / "engines" / f"{engine['name']}.gate.json")
        engines.append((engine["name"], address(gate.get("host"), engine["port"])))
    before = {name: page(base, key) for name, base in engines}
    time.sleep(SAMPLE_S)
    rows = []
    for name, base in engines:
        lines = ask("journalctl", "-u", f"qwen-engine@{name}", "-b", "-o", "cat", "--no-pager", "-n", JOURNAL_LINES)
        verified = document(VERIFY / f"{name}.json")
        rows.append(
            {
                "name": name,
                "address": base,
                **unit(name),
                **load(before[name], page(base, key), SAMPLE_S),
                "verified": {part: verified[part] for part in ("at", "ok", "release") if part in verified},
                "journal": lines.splitlines(),
            }
        )
    place = current_place()
    return {
        "release": current_release(place),
        "release_problems": release_problems(place),
        "vllm": plan.get("vllm"),
        "driver": driver(),
        "enabled": ask("systemctl", "is-enabled", "qwen.service").strip() == "enabled",
        "failed": document(FAILED),
        "engines": rows,
        "cards": cards(),
        "kernel": kernel(),
    }


if __name__ == "__main__":
    print(json.dumps(status()))

"""Automatic restarts: how many there were, how long to pause before one, and the cache that may be at fault."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

LONGEST_PAUSE_S = 300
HOUR_S = 3600.0
CACHE_SUSPECT_AFTER = 2  # automatic restarts


def restart_pause(restarts: int) -> int:
    """Seconds to wait before an automatic restart beyond systemd's own: 0, 0, 20, 40, 80 ... at most five minutes."""
    return 0 if restarts < 2 else min(LONGEST_PAUSE_S, 10 * 2 ** min(restarts - 1, 10))


def set_cache_aside(home: Path) -> Path | None:
    """Move vLLM's compile cache away: one that a power cut damaged would fail every start. None when there is none."""
    cache = home / ".cache/vllm/torch_compile_cache"
    if not cache.is_dir():
        return None
    aside = cache.with_name(f"{cache.name}.suspect")
    subprocess.run(["rm", "-rf", str(aside)], check=False)
    cache.rename(aside)
    return aside


def recent_restarts(total: int, record: Path, now: float) -> int:
    """How often systemd restarted the engine by itself within the last hour, kept in `record`.

    Args:
        total: systemd's count (NRestarts), which starts anew when a person starts the unit.
        now: seconds of the boot's clock, which no change of the date moves.
    """
    try:
        known: dict[str, Any] = json.loads(record.read_text())
    except (OSError, ValueError):
        known = {"total": 0, "at": []}
    at = [moment for moment in known["at"] if now - moment < HOUR_S] if total else []
    if total > known["total"] or (total and not at):
        at.append(now)
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps({"total": total, "at": at}))
    return len(at)


def restarts_of(unit: str) -> int:
    """systemd's count of its own restarts of the unit."""
    command = ["systemctl", "show", "-p", "NRestarts", "--value", unit]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(text) if text.isdigit() else 0

#!/usr/bin/env python3
"""gate.py NAME: may engine NAME start now? Runs as root before every start; changes nothing that is in use.

Reads /etc/qwen/engines/NAME.gate.json and writes its verdict to /run/qwen/NAME.gate. The engine's own process reads the
verdict and leaves with its code: systemd judges that process alone when it decides on a restart
(RestartPreventExitStatus= does not look at ExecStartPre=). 78 means that restarting cannot mend it; 75 that it may.
Standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from qwenlab.remote.gating.cards import check_cards, check_driver, check_links
from qwenlab.remote.gating.files import check_files
from qwenlab.remote.gating.look import CONFIG, ETC, Check, Gate, Problem
from qwenlab.remote.gating.release import check_release
from qwenlab.remote.gating.restarts import (
    CACHE_SUSPECT_AFTER,
    recent_restarts,
    restart_pause,
    restarts_of,
    set_cache_aside,
)
from qwenlab.remote.gating.room import check_port, check_room

RUN = Path("/run/qwen")
POLL_S = 1.0
CHECKS: tuple[Check, ...] = (
    # in the order in which a person mends things
    check_files,
    check_release,
    check_driver,
    check_cards,
    check_links,
    check_room,
    check_port,
)


def problems(gate: Gate) -> list[Problem]:
    """Everything against a start now."""
    return [problem for check in CHECKS for problem in check(gate)]


def settle(
    look: Callable[[], list[Problem]], patience_s: float, tell: Callable[[str], None], pause: Callable[[float], None]
) -> list[Problem]:
    """Look until nothing is wrong, something is that waiting cannot mend, or patience ends."""
    deadline = time.monotonic() + patience_s
    while True:
        found = look()
        if not found or any(problem.code == CONFIG for problem in found) or time.monotonic() >= deadline:
            return found
        tell(f"waiting: {found[0].text}")
        pause(POLL_S)


def notify(text: str) -> None:
    """Status line of the unit (sd_notify(3)) and a line in its journal."""
    print(f"gate: {text}", flush=True)
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.send(f"STATUS={text}".encode())


def once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """`tell`, but the same words only once in a row."""
    last = [""]

    def changed(text: str) -> None:
        if text != last[0]:
            last[0] = text
            tell(text)

    return changed


def judge(name: str) -> list[Problem]:
    """The problems of engine `name` after waiting for what may pass."""
    path = ETC / "engines" / f"{name}.gate.json"
    try:
        asked: dict[str, Any] = json.loads(path.read_text())
        gate = Gate(asked)
        patience = float(asked["wait_s"])
        total = restarts_of(f"qwen-engine@{name}.service")
        restarts = recent_restarts(total, RUN / f"{name}.restarts", time.monotonic())
        if restarts >= CACHE_SUSPECT_AFTER:
            aside = set_cache_aside(Path(asked["home"]))
            if aside:
                notify(f"restart {restarts}: compile cache set aside as {aside}")
        pause = restart_pause(restarts)
        if pause:
            notify(f"restart {restarts}: pausing {pause} s before it")
            time.sleep(pause)
        return settle(lambda: problems(gate), patience, once(notify), time.sleep)
    except (OSError, ValueError, KeyError, TypeError):
        return [Problem(f"{path} is missing or damaged: deploy again")]


def main(argv: list[str]) -> int:
    """Judge and write the verdict; always 0, see the head of this file."""
    (name,) = argv
    found = judge(name)
    for problem in found:
        if problem.mute:
            notify(f"refused: {problem.text}")
    RUN.mkdir(exist_ok=True)
    RUN.chmod(0o755)
    # what waiting cannot mend decides; the words name everything
    code = max((problem.code for problem in found), default=0)
    verdict = RUN / f"{name}.gate"
    fresh = RUN / f"{name}.gate.new"
    fresh.write_text(json.dumps({"code": code, "reasons": [problem.text for problem in found]}))
    fresh.chmod(0o644)
    fresh.rename(verdict)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

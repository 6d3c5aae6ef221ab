"""Following the fetches of checkpoints: what their units say, until they end."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from qwenlab.operations.connection import reconnect
from qwenlab.operations.progress import Reading
from qwenlab.operations.progress_board import Shown

POLL_S = 1.0
LOST_POLLS = 30  # in a row, each with an attempt to connect again
LOCK = "/run/qwen-fetch.lock"


@dataclass(frozen=True)
class Report:
    """A fetch's status file, and whether its unit runs.

    Attributes:
        state: the fetch's own word, "done" or "failed" at its end.
        deploy: the id of the deploy that began it.
    """

    active: bool
    state: str = ""
    reading: Reading = field(default_factory=Reading)
    deploy: str = ""


def locked(shared: bool = False) -> str:
    """Shell that waits until no deploy starts a fetch on the host; the lock ends with the shell.

    A start removes what the last fetch said before the unit is up: without the lock another deploy would read that
    moment as a fetch that was killed, or take away the job that the first has just written.
    """
    return f"exec 9>> {LOCK} && flock {'--shared ' if shared else ''}9 &&"


def poll_command(unit: str, status: str) -> StringCommand:
    """Prints the unit's state, then the status file: in this order, since the unit writes its last word and ends."""
    return StringCommand(
        locked(shared=True),
        f"{{ systemctl is-active {shlex.quote(unit)}; cat {shlex.quote(status)} 2> /dev/null || true; }}",
    )


def parse_report(lines: list[str]) -> Report:
    """The unit's state and its status file, as `poll_command` prints them; a missing file leaves the fields empty."""
    active = bool(lines) and lines[0].strip() in ("active", "activating", "deactivating")
    for line in lines[1:]:
        try:
            data: dict[str, Any] = json.loads(line)
            reading = Reading(data["phase"], data["message"], data["done"], data["total"])
            return Report(active, data["state"], reading, data["deploy"])
        except (ValueError, KeyError, TypeError):
            continue
    return Report(active)


@dataclass(frozen=True)
class Fetch:
    """A fetch to be followed.

    Attributes:
        unit, status: the unit on the host that does it, and the file in which that says how far it is.
        label: the repository, for people.
        deploy: the id that our own job names: a fetch that names another was begun by another deploy.
    """

    unit: str
    status: str
    label: str
    deploy: str


def follow(
    state: State,
    host: Host,
    fetch: Fetch,
    arguments: dict[str, Any],
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Show how far a fetch is until it has ended; whether it ended well. The fetch itself needs nobody to follow it.

    Args:
        arguments: how commands on the host become root.
    """
    command = poll_command(fetch.unit, fetch.status)
    lost, others = 0, False
    with Shown(host, fetch.label) as shown:
        while True:
            lines = _ask(host, command, arguments)
            if lines is None:
                lost += 1
                if lost >= LOST_POLLS:
                    host.log_styled(
                        f"the connection is gone; the fetch of {fetch.label} goes on on the host: deploy again to "
                        "follow it",
                        fg="red",
                        log_func=logger.error,
                    )
                    return False
                sleep(POLL_S)
                reconnect(host, "to follow a fetch")
                continue
            lost = 0
            report = parse_report(lines)
            if report.deploy not in ("", fetch.deploy) and not others:
                others = True
                host.log(f"another deploy fetches {fetch.label} on this host: waiting for it")
            if not report.active:
                return _end(host, fetch, report, arguments)
            shown.tell(report.reading)
            sleep(POLL_S)


def _ask(host: Host, command: StringCommand, arguments: dict[str, Any]) -> list[str] | None:
    try:
        success, output = host.run_shell_command(command, **arguments)
    except Exception:  # paramiko, the socket and pyinfra's connectors each have their own
        return None
    return output.stdout_lines if success else None


def _end(host: Host, fetch: Fetch, report: Report, arguments: dict[str, Any]) -> bool:
    if report.state == "done":
        host.log(report.reading.message)
        return True
    words = report.reading.message
    if report.state != "failed":
        journal = StringCommand(
            f"journalctl --no-pager --output=cat --lines=3 --unit={shlex.quote(fetch.unit)} || true"
        )
        tail = _ask(host, journal, arguments) or []
        words = (
            f"the fetch of {fetch.label} was killed ({' / '.join(tail) or 'no word in its journal'}): out of memory or "
            f"stopped by hand? See journalctl -u {fetch.unit}; deploy again, what is fetched is kept"
        )
    host.log_styled(words, fg="red", log_func=logger.error)
    return False

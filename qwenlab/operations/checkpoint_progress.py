"""Following fetches on several hosts at once: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import json
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from qwenlab.operations.connection import reconnect

POLL_S = 1.0
LINE_EVERY_S = 15.0
CLEAR = "\033[K"  # the rest of the line
LOST_POLLS = 30  # in a row, each with an attempt to connect again
LOCK = "/run/qwen-fetch.lock"


@dataclass
class Report:
    """One reading of a fetch's status file, and whether its unit runs."""

    active: bool
    state: str = ""
    phase: str = ""
    message: str = ""
    done: int = 0
    total: int = 0
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
            return Report(
                active, **{key: data[key] for key in ("state", "phase", "message", "done", "total", "deploy")}
            )
        except (ValueError, KeyError, TypeError):
            continue
    return Report(active)


@dataclass
class Rate:
    """Bytes per second, smoothed over about ten seconds."""

    value: float = 0.0
    _last: tuple[float, int] | None = field(default=None, repr=False)

    def update(self, now: float, done: int) -> float:
        """Take a reading; what lay there before the first one does not count."""
        if self._last is not None and now > self._last[0]:
            seconds, count = now - self._last[0], max(0, done - self._last[1])
            weight = min(1.0, seconds / 10) if self.value else 1.0
            self.value += weight * (count / seconds - self.value)
        self._last = (now, done)
        return self.value


def amount(count: float) -> str:
    """Bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"


def remaining(seconds: float) -> str:
    """A time to wait for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def line(label: str, report: Report, rate: float) -> str:
    """One plain line of progress."""
    if not report.total:
        return f"{label}: {report.phase or 'starting'} {report.message}".rstrip()
    text = f"{label}: {report.phase}, {amount(report.done)} of {amount(report.total)}"
    text += f" ({100 * report.done / report.total:.0f} %)"
    if rate > 0:
        text += f", {amount(rate)}/s, {remaining((report.total - report.done) / rate)} left"
    return text


class Above(io.TextIOBase):
    """Standard error while bars are shown: whole lines go above the bars. pyinfra's spinner, which writes without ever
    ending a line, is left out until they are gone."""

    def __init__(self, console: Console, stream: TextIO) -> None:
        self._console, self._stream, self._line = console, stream, ""
        self.rich_proxied_file = stream  # where the console itself writes

    def write(self, text: str) -> int:
        """Take text; print what is a whole line."""
        *lines, self._line = (self._line + text).split("\n")
        # the spinner goes back to the line's beginning, and has the rest of the line cleared before the next text
        self._line = self._line.rpartition("\r")[2].removeprefix(CLEAR)
        for line in lines:
            self._console.print(Text.from_ansi(line.rpartition("\r")[2].removeprefix(CLEAR)), soft_wrap=True)
        return len(text)

    def isatty(self) -> bool:
        """As what is behind it."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """As what is behind it."""
        return self._stream.fileno()


class Board:
    """The bars of all hosts, below everything else that is said meanwhile."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=8)),
            TextColumn("{task.fields[size]}", table_column=Column(no_wrap=True, justify="right")),
            TextColumn("{task.fields[rate]}", table_column=Column(no_wrap=True, justify="right")),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            console=console,
            auto_refresh=False,
            expand=True,
        )
        self._console = console
        self._live: Live | None = None
        self._stderr = sys.stderr
        self._open = 0

    def add(self, label: str) -> TaskID:
        """A bar more; the first one opens the display."""
        if self._live is None:
            self._live = Live(
                get_renderable=self._progress.get_renderable,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            sys.stderr.write(CLEAR)  # what the spinner left
            self._live.start()
            self._stderr, sys.stderr = sys.stderr, Above(self._console, sys.stderr)
        self._open += 1
        return self._progress.add_task(label, total=None, size="", rate="starting")

    def update(self, task: TaskID, report: Report, rate: float) -> None:
        """Redraw with one host's news."""
        text = f"{amount(rate)}/s" if rate else report.phase
        size = f"{amount(report.done)} of {amount(report.total)}" if report.total else ""
        self._progress.update(task, total=report.total or None, completed=report.done, size=size, rate=text)
        if self._live is not None:
            self._live.refresh()

    def remove(self, task: TaskID) -> None:
        """A bar less; the last one closes the display."""
        self._progress.remove_task(task)
        self._open -= 1
        if self._live is None:
            return
        if self._open:
            self._live.refresh()
            return
        sys.stderr = self._stderr
        self._live.stop()
        self._live = None


BOARD = Board(Console(stderr=True))


def follow(
    state: State,
    host: Host,
    unit: str,
    status: str,
    label: str,
    deploy: str,
    arguments: dict[str, Any],
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Show how far a fetch is until it has ended; whether it ended well. The fetch itself needs nobody to follow it.

    `deploy` is the id that our own job names: a fetch that names another was begun by another deploy.
    """
    command = poll_command(unit, status)
    task = BOARD.add(f"{host.name} {label}") if sys.stderr.isatty() else None
    rate, said, spoken, lost, others = Rate(), "", 0.0, 0, False
    try:
        while True:
            lines = _ask(host, command, arguments)
            if lines is None:
                lost += 1
                if lost >= LOST_POLLS:
                    host.log_styled(
                        f"the connection is gone; the fetch of {label} goes on on the host: deploy again to follow it",
                        fg="red",
                        log_func=logger.error,
                    )
                    return False
                sleep(POLL_S)
                reconnect(host, "to follow a fetch")
                continue
            lost = 0
            report = parse_report(lines)
            if report.deploy not in ("", deploy) and not others:
                others = True
                host.log(f"another deploy fetches {label} on this host: waiting for it")
            if not report.active:
                return _end(host, unit, label, report, arguments)
            now = time.monotonic()
            current = rate.update(now, report.done) if report.total else 0.0
            if task is not None:
                BOARD.update(task, report, current)
            elif report.phase != said or now - spoken >= LINE_EVERY_S:
                host.log(line(label, report, current))
                said, spoken = report.phase, now
            sleep(POLL_S)
    finally:
        if task is not None:
            BOARD.remove(task)


def _ask(host: Host, command: StringCommand, arguments: dict[str, Any]) -> list[str] | None:
    try:
        success, output = host.run_shell_command(command, **arguments)
    except Exception:  # paramiko, the socket and pyinfra's connectors each have their own
        return None
    return output.stdout_lines if success else None


def _end(host: Host, unit: str, label: str, report: Report, arguments: dict[str, Any]) -> bool:
    if report.state == "done":
        host.log(report.message)
        return True
    words = report.message
    if report.state != "failed":
        journal = StringCommand(f"journalctl --no-pager --output=cat --lines=3 --unit={shlex.quote(unit)} || true")
        tail = _ask(host, journal, arguments) or []
        words = (
            f"the fetch of {label} was killed ({' / '.join(tail) or 'no word in its journal'}): out of memory or "
            f"stopped by hand? See journalctl -u {unit}; deploy again, what is fetched is kept"
        )
    host.log_styled(words, fg="red", log_func=logger.error)
    return False

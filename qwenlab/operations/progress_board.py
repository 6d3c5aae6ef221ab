"""Transfers as a person sees them: bars of all hosts at the foot of a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import sys
import time
from typing import TextIO

from pyinfra.api.host import Host
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from qwenlab.operations.progress import Rate, Reading, amount, line

LINE_EVERY_S = 15.0
CLEAR = "\033[K"  # the rest of the line


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
        for whole in lines:
            self._console.print(Text.from_ansi(whole.rpartition("\r")[2].removeprefix(CLEAR)), soft_wrap=True)
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

    def update(self, task: TaskID, reading: Reading, rate: float) -> None:
        """Redraw with one host's news; `rate` in bytes per second."""
        text = f"{amount(rate)}/s" if rate else reading.phase
        size = f"{amount(reading.done)} of {amount(reading.total)}" if reading.total else ""
        self._progress.update(task, total=reading.total or None, completed=reading.done, size=size, rate=text)
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


class Shown:
    """One transfer as a person sees it while the block lasts: a bar on a terminal, elsewhere a line for each phase and
    one every `LINE_EVERY_S`."""

    def __init__(self, host: Host, label: str) -> None:
        self._host, self._label = host, label
        self._task = BOARD.add(f"{host.name} {label}") if sys.stderr.isatty() else None
        self._rate, self._phase, self._spoken = Rate(), "", 0.0

    def __enter__(self) -> Shown:
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            BOARD.remove(self._task)

    def tell(self, reading: Reading) -> None:
        """Show one reading."""
        now = time.monotonic()
        rate = self._rate.update(now, reading.done) if reading.total else 0.0
        if self._task is not None:
            BOARD.update(self._task, reading, rate)
        elif reading.phase != self._phase or now - self._spoken >= LINE_EVERY_S:
            self._host.log(line(self._label, reading, rate))
            self._phase, self._spoken = reading.phase, now

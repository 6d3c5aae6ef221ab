"""What a person sees of fetches while a deploy runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from qwenlab.operations import progress_board
from qwenlab.operations.checkpoint_progress import LOST_POLLS, Fetch, follow
from qwenlab.operations.progress import Reading
from qwenlab.operations.progress_board import Board

WORKING = ["active"]


def report(state: str, phase: str, done: int = 0, message: str = "", deploy: str = "mine") -> str:
    """The status file on a host."""
    told = {"state": state, "phase": phase, "message": message, "done": done, "total": 10_000_000, "deploy": deploy}
    return json.dumps(told)


@dataclass
class Rack:
    """A host that answers polls from a list; None is a lost connection."""

    answers: list[list[str] | None]
    said: list[str] = field(default_factory=list)
    connects: int = 0
    connected: bool = True
    connector_data: dict[str, Any] = field(default_factory=dict)
    name: str = "rack-1"

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        answer = self.answers.pop(0)
        if answer is None:
            raise ConnectionResetError
        return True, SimpleNamespace(stdout_lines=answer)

    def connect(self, **_: Any) -> None:
        """As pyinfra's: nothing is done while it takes the connection for alive."""
        self.connects += not self.connected
        self.connected = True

    def disconnect(self) -> None:
        self.connected = False

    def log(self, message: str) -> None:
        self.said.append(message)

    def log_styled(self, message: str, **_: Any) -> None:
        self.said.append(message)

    def follow(self) -> bool:
        """The end of a fetch that this host runs."""
        nowhere: Any = None
        here: Any = self
        fetch = Fetch("qwen-fetch-1", "/run/x.json", "a/b", "mine")
        return follow(nowhere, here, fetch, {}, sleep=lambda _: None)


def test_without_a_terminal_each_phase_is_a_line_and_the_last_word_is_the_fetch_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    fetching = report("running", "fetching", 5_000_000)
    host = Rack(
        [WORKING, ["active", fetching], ["active", fetching], ["inactive", report("done", "fetching", 9, "whole")]]
    )
    assert host.follow()
    assert host.said == ["a/b: starting", "a/b: fetching, 5.0 MB of 10.0 MB (50 %)", "whole"]
    assert "\033" not in screen.getvalue()


def test_the_fetch_of_another_deploy_is_followed_and_told_once() -> None:
    other = report("running", "fetching", 5, deploy="other")
    host = Rack([["active", other], ["active", other], ["inactive", report("done", "fetching", 9, "whole", "other")]])
    assert host.follow()
    assert host.said.count("another deploy fetches a/b on this host: waiting for it") == 1
    assert host.said[-1] == "whole"


def test_a_lost_connection_is_made_again_and_the_fetch_followed_on() -> None:
    host = Rack([WORKING, None, None, ["inactive", report("done", "fetching", 9, "whole")]])
    assert host.follow()
    assert host.connects == 2


def test_a_connection_that_stays_lost_is_told_with_what_goes_on() -> None:
    host = Rack([None] * LOST_POLLS)
    assert not host.follow()
    assert host.said[-1].startswith("the connection is gone; the fetch of a/b goes on on the host: deploy again")


def test_a_fetch_that_was_killed_is_told_with_its_journal() -> None:
    host = Rack([WORKING, ["failed", report("running", "fetching", 5)], ["Out of memory", "Killed process"]])
    assert not host.follow()
    assert "was killed (Out of memory / Killed process)" in host.said[-1]
    assert "what is fetched is kept" in host.said[-1]


class Terminal(io.StringIO):
    """A screen that notes what is written to it."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> tuple[Terminal, Board]:
    """Standard error is a terminal, with bars on it."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    return screen, Board(Console(stderr=True, force_terminal=True, width=100))


def test_each_host_has_a_bar_with_bytes_rate_and_remaining_time(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, board = terminal(monkeypatch)
    for name in ("rack-1", "rack-2"):
        board.update(board.add(f"{name} a/b"), Reading("fetching", "", 5 * 10**9, 20 * 10**9), 1e8)
    last = screen.getvalue().rpartition("rack-1 a/b")[2]
    assert "5.0 GB of 20.0 GB" in last
    assert "100.0 MB/s" in last
    assert "rack-2 a/b" in last


def test_what_is_said_meanwhile_stands_above_the_bars_and_the_spinner_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, board = terminal(monkeypatch)
    task = board.add("rack-1 a/b")
    assert sys.stderr is not screen
    assert sys.stderr.isatty()
    print("    - waiting for hosts\r", end="\033[K", file=sys.stderr)
    print("    [rack-2] Success", file=sys.stderr)
    board.update(task, Reading("fetching", "", 5, 10), 1.0)
    board.remove(task)
    assert sys.stderr is screen
    shown = screen.getvalue()
    assert "[rack-2] Success" in shown
    assert "waiting for hosts" not in shown
    assert shown.index("[rack-2] Success") < shown.rindex("rack-1 a/b")


def test_the_board_is_the_one_that_follow_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, board = terminal(monkeypatch)
    monkeypatch.setattr(progress_board, "BOARD", board)
    host = Rack([["active", report("running", "fetching", 5)], ["inactive", report("done", "fetching", 9, "whole")]])
    assert host.follow()
    assert host.said == ["whole"]
    assert "rack-1 a/b" in screen.getvalue()

"""Hosts take turns: who is touched, and who is left as it was once one failed."""

from __future__ import annotations

import logging
from collections.abc import Generator

import gevent  # type: ignore[import-untyped]
import pytest
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.operation import add_op, operation
from pyinfra.api.operations import run_ops
from pyinfra.api.state import State, StateStage
from pyinfra.context import host as current

from qwenlab.operations import rollout
from qwenlab.operations.rollout import Step

touched: list[str] = []


@operation()
def touch(what: str, idle: tuple[str, ...] = (), broken: tuple[str, ...] = ()) -> Generator[PyinfraCommand, None, None]:
    """Notes host and step; nothing to do on `idle` hosts, fails on `broken` ones."""
    name = current.name.removeprefix("@fake/")
    if name not in idle:
        yield FunctionCommand(_note, [what, name not in broken], {})


@operation()
def wait(line: str, idle: tuple[str, ...]) -> Generator[PyinfraCommand, None, None]:
    """Ends when that was noted; nothing to do on `idle` hosts."""
    name = current.name.removeprefix("@fake/")
    if name not in idle:
        yield FunctionCommand(_wait, [f"{name} waits", line], {})


def _wait(state: State, host: Host, own: str, line: str) -> None:
    touched.append(own)
    while line not in touched:
        gevent.sleep(0.01)


def _note(state: State, host: Host, what: str, works: bool) -> bool:
    touched.append(f"{host.name.removeprefix('@fake/')} {what}")
    return works


def run(names: str, limit: int | None, *steps: Step, host_by_host: bool = False) -> State:
    """A run over these hosts to its end."""
    touched.clear()
    quiet = {"fake_delay": 0, "fake_delay_jitter": 0}
    state = State(Inventory(([(f"@fake/{name}", quiet) for name in names.split()], {})), Config())
    state.current_stage = StateStage.Connect
    connect_all(state)
    state.set_stage(StateStage.Prepare)
    add_op(state, rollout.in_turn, steps=steps, limit=limit)
    state.set_stage(StateStage.Execute)
    run_ops(state, serial=host_by_host)
    return state


def test_one_at_a_time_each_host_ends_its_turn_before_the_next_begins() -> None:
    run("a b c", 1, Step("one", touch, {"what": "one"}), Step("two", touch, {"what": "two"}))
    assert touched == ["a one", "a two", "b one", "b two", "c one", "c two"]


def test_after_a_host_failed_the_next_ones_are_left_as_they_were(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="pyinfra"):
        run("a b c", 1, Step("one", touch, {"what": "one"}), Step("two", touch, {"what": "two", "broken": ("b",)}))
    assert touched == ["a one", "a two", "b one", "b two"]
    assert "left as it was: @fake/b failed. What served here serves on" in caplog.text


def test_two_at_a_time_whoever_has_begun_goes_on_and_the_others_are_left() -> None:
    until = (
        Step("wait", wait, {"line": "b waits", "idle": ("b",)}),
        Step("wait", wait, {"line": "a one", "idle": ("a",)}),
    )
    run("a b c d", 2, *until, Step("one", touch, {"what": "one", "broken": ("a",)}))
    assert touched == ["a waits", "b waits", "a one", "b one"]


def test_a_host_where_nothing_is_to_do_takes_no_turn_and_fails_for_nobody() -> None:
    state = run("a b c", 1, Step("one", touch, {"what": "one", "broken": ("a",), "idle": ("b",)}))
    assert touched == ["a one"]
    failed = [host.name for host in state.inventory if state.get_results_for_host(host).error_ops]
    assert failed == ["@fake/a", "@fake/c"]


def test_all_at_once_a_failure_is_its_hosts_alone() -> None:
    run("a b c", None, Step("one", touch, {"what": "one", "broken": ("a",)}), Step("two", touch, {"what": "two"}))
    assert sorted(touched) == ["a one", "b one", "b two", "c one", "c two"]


def test_pyinfras_own_serial_run_comes_to_its_end() -> None:
    """It takes hosts in the order of a set: one whose turn it is must not wait for one that comes later."""
    for _ in range(5):
        run("a b c", 1, Step("one", touch, {"what": "one"}), host_by_host=True)
        assert sorted(touched) == ["a one", "b one", "c one"]


def test_a_run_whose_every_host_failed_says_so() -> None:
    with pytest.raises(PyinfraError, match="No hosts remaining"):
        run("a b", 1, Step("one", touch, {"what": "one", "broken": ("a", "b")}))
    assert touched == ["a one"]

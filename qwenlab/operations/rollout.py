"""The part of a deploy that touches what serves, for a few hosts at a time: the steps of a host as one operation.

pyinfra ends each operation on all hosts before it begins the next, so hosts can only take turns within one operation;
and its own `_serial` and `_parallel` take hosts in the order of a set, not in the inventory's.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import gevent  # type: ignore[import-untyped]
from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

POLL_S = 0.1


@dataclass(frozen=True)
class Step:
    """One of the operations that a host's turn consists of.

    Attributes:
        name: for the log.
        operation: what `pyinfra.api.operation` made.
        arguments: by name; may be secret, so they are not part of what is printed.
    """

    name: str
    operation: Any = field(repr=False)
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass
class Turns:
    """Names of the hosts of a run that began their turn, and of those that ended it well or had nothing to do."""

    begun: list[str] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)

    def failed(self, state: State) -> list[str]:
        """Hosts that failed after they began."""
        return [
            one.name for one in state.inventory if one.name in self.begun and state.get_results_for_host(one).error_ops
        ]

    def is_due(self, state: State, host: Host, limit: int) -> bool:
        """Whether fewer than `limit` hosts are at it, and every host before this one has begun or needs no turn."""
        busy = set(self.begun) - self.ended
        return len(busy) < limit and self._before(state, host) <= self.ended | set(self.begun)

    def _before(self, state: State, host: Host) -> set[str]:
        """Hosts that come before this one in the inventory and are at the same operation now: with pyinfra's `--serial`
        and `--no-wait`, and with more hosts than it has workers, others may come to it later."""
        everyone = list(state.inventory)
        earlier = everyone[: everyone.index(host)]
        return {one.name for one in earlier if one.executing_op_hash == host.executing_op_hash}


_turns: WeakKeyDictionary[State, Turns] = WeakKeyDictionary()


@operation()
def in_turn(steps: tuple[Step, ...], limit: int | None) -> Generator[PyinfraCommand, None, None]:
    """Every step on this host, one after the other; nothing where no step has anything to do.

    Args:
        steps: in order.
        limit: hosts that are at it at the same time; when one fails, those that have not begun are left as they are.
            None: all at once, and a failure is its host's alone.
    """
    entered = False
    for step in steps:
        said = False
        for command in step.operation._inner(**step.arguments):
            if not entered:
                yield FunctionCommand(_begin, [limit], {})
            entered = True
            if not said:
                yield FunctionCommand(_say, [step.name], {})
            said = True
            yield command
    if host.state.is_executing:
        _turns.setdefault(host.state, Turns()).ended.add(host.name)
    if not entered:
        host.noop("it serves with what is wanted")


def _begin(state: State, host: Host, limit: int | None) -> bool:
    turns = _turns.setdefault(state, Turns())
    gevent.sleep(0)  # the others begin this operation, too
    while limit is not None:
        if failed := turns.failed(state):
            host.log_styled(
                f"left as it was: {', '.join(failed)} failed. What served here serves on; mend that host and run again",
                fg="red",
                log_func=logger.error,
            )
            return False
        if turns.is_due(state, host, limit):
            break
        gevent.sleep(POLL_S)
    turns.begun.append(host.name)
    return True


def _say(state: State, host: Host, name: str) -> None:
    host.log(name, log_func=logger.info)

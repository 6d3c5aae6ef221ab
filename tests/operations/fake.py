"""Runs operations against a host that is not there: what it answers is scripted, what would be executed is returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all
from pyinfra.api.inventory import Inventory
from pyinfra.api.operation import add_op
from pyinfra.api.state import State, StateStage
from pyinfra.context import ctx_host, ctx_state

Answer = str | Sequence[str] | dict[str, Any]


def commands(operation: Callable[..., Any], answers: Mapping[Any, Answer], **arguments: Any) -> list[tuple[str, str]]:
    """Each command that the operation would run, with what goes to its stdin; a refusal as ("refused", reasons).

    Args:
        answers: part of a command to what the host says to it; the first that fits wins.
    """
    data = {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": dict(answers)}
    state = State(Inventory(([("@fake/rack", data)], {})), Config())
    state.current_stage = StateStage.Connect
    connect_all(state)
    state.set_stage(StateStage.Prepare)
    add_op(state, operation, **arguments)
    (host,) = state.inventory
    found: list[tuple[str, str]] = []
    with ctx_state.use(state), ctx_host.use(host):
        for op_hash in state.get_op_order():
            for command in state.get_op_data_for_host(host, op_hash).command_generator():
                found.append(_shown(command))
    return found


def _shown(command: Any) -> tuple[str, str]:
    if isinstance(command, FunctionCommand) and command.function.__name__ == "_refuse":
        return "refused", "\n".join(command.args[0])
    if isinstance(command, FunctionCommand):
        return str(command.function.__name__), ""
    assert isinstance(command, StringCommand)
    return command.get_raw_value(), str(command.connector_arguments.get("_stdin") or "")

"""How one host is refused: a command that fails for that host alone, with words; never an exception."""

from __future__ import annotations

from collections.abc import Iterable

from pyinfra import logger
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State


def refusal(reasons: Iterable[str]) -> FunctionCommand:
    """A command that prints each reason for the host and fails there. The other hosts of the run go on."""
    return FunctionCommand(_refuse, [tuple(reasons)], {})


def _refuse(state: State, host: Host, reasons: tuple[str, ...]) -> bool:
    for reason in reasons:
        host.log_styled(f"refused: {reason}", fg="red", log_func=logger.error)
    return False

"""The way back: keep what serves well, bring it back when something newer does not."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from qwenlab.facts.generation import GenerationSaved, ServedRelease
from qwenlab.remote import LIBRARY

PROGRAM = f"{LIBRARY}/generation.py"


@operation()
def remember() -> Generator[PyinfraCommand, None, None]:
    """Keep release, plan and units as the host's last good generation."""
    if host.get_fact(GenerationSaved):
        host.noop("the last good generation is what is there")
        return
    yield StringCommand("python3", PROGRAM, "save")


@operation(is_idempotent=False)
def rollback() -> Generator[PyinfraCommand, None, None]:
    """Bring the former generation back and start it; the host fails when there is none or it does not start."""
    yield StringCommand("python3", PROGRAM, "restore", "--on-request")
    yield FunctionCommand(_show, [], {})


def _show(state: State, host: Host) -> None:
    name = host.get_fact(ServedRelease) or "the former one"
    logger.info(f"{host.print_prefix}release {name} and its plan serve again; the same play goes forth again")

"""How each host serves; a host that does not serve as asked fails, so that the exit code tells monitoring."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from qwenlab.facts.file_states import PathStates
from qwenlab.facts.host_status import HostStatus
from qwenlab.gateway.files import gateway_files
from qwenlab.operations.paths import stale
from qwenlab.operations.planning import host_plan
from qwenlab.render import programs, render
from qwenlab.service.report import Report
from qwenlab.settings import Settings


@operation(is_idempotent=False)
def report(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Print it. Nothing is changed.

    Args:
        settings: the host's settings.
    """
    plan = host_plan(settings)
    planned = {**programs(settings), **render(plan, settings), **gateway_files(plan, settings)}
    files = planned if plan.status == "planned" else {}
    states = host.get_fact(PathStates, paths=tuple(files))
    status = host.get_fact(HostStatus)
    made = Report(status, stale(files, states), [engine.name for engine in plan.engines])
    yield FunctionCommand(_print, [made, settings.status_json], {})


def _print(state: State, host: Host, made: Report, as_json: bool) -> bool:
    if as_json:
        print(f'{{"host": "{host.name}", {made.as_json()[1:]}')
    else:
        for line in made.lines():
            logger.info(f"{host.print_prefix}{line}")
    return made.ok

"""Calibration: engines are started once without their pin, and the host writes down what they take."""

from __future__ import annotations

import json
from collections.abc import Generator

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from qwenlab.engine.release import BuildStep
from qwenlab.facts.file_states import PathStates
from qwenlab.host_inventory import HostInventory
from qwenlab.operations.engine import engine_state, wanted_release
from qwenlab.operations.patch import with_series
from qwenlab.operations.paths import stale
from qwenlab.operations.planning import host_inventory, pinned, safe_plan
from qwenlab.operations.refusal import refusal
from qwenlab.planner.measured import measurement_of
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.remote import LIBRARY
from qwenlab.render import render
from qwenlab.service.calibration import due, job, table
from qwenlab.settings import Settings

RUN = "/run/qwen-calibrate"
UNIT = "qwen-calibrate"


@operation()
def measure(settings: Settings, steps: tuple[BuildStep, ...] = ()) -> Generator[PyinfraCommand, None, None]:
    """Measure every engine for which no measurement holds; the engines go on serving without their pin.

    The measuring is a unit of its own: it goes on when the SSH session ends, and whatever ends it, the engines are
    started as planned.

    Args:
        settings: the host's settings.
        steps: as given to `engine.release`.
    """
    inventory = host_inventory(settings)
    bare = safe_plan(inventory.model_copy(update={"measurements": ()}), settings)
    if bare.status == "refused":
        yield refusal(one.text for one in bare.refusals)
        return
    engines = due(bare, inventory, again=settings.calibrate_again)
    if not engines:
        host.noop("every measurement holds")
        return
    steps, reasons = with_series(settings, steps)
    reasons = reasons or _not_deployed(settings, steps, bare, safe_plan(inventory, settings))
    if reasons:
        yield refusal(reasons)
        return
    path = f"{RUN}/job.json"
    yield StringCommand(
        f"umask 022 && mkdir -p {RUN} && cat > {path}", _stdin=json.dumps(job(bare, engines, inventory, settings))
    )
    yield StringCommand(transient(UNIT, f"{LIBRARY}/calibrate.py", f"measure {path}"))


def transient(unit: str, program: str, arguments: str) -> str:
    """Shell that runs a program as a unit to its end; when it fails, its words are shown. `restore` ends it always.

    That may start engines again, which takes as long as it takes: their own units bound it.
    """
    return (
        f"since=$(date +%s); systemd-run --quiet --collect --wait --unit={unit} --property=TimeoutStopSec=infinity "
        f"--property='ExecStopPost=/usr/bin/python3 -B {program} restore' /usr/bin/python3 -B {program} {arguments} "
        f"|| {{ journalctl -u {unit} --since=@$since -o cat --no-pager -n 80; exit 1; }} >&2"
    )


def _not_deployed(settings: Settings, steps: tuple[BuildStep, ...], bare: HostPlan, now: HostPlan) -> tuple[str, ...]:
    """Why the host cannot be measured: it does not run what the settings ask for."""
    state = engine_state(settings)
    wanted = wanted_release(settings, state, steps)
    if state.current != wanted:
        return (f"release {wanted} is not the current one ({state.current or 'there is none'}): deploy first",)
    # a record whose plan is not in place yet is no reason: a run that was cut off is taken up again
    for plan in (now, bare):
        files = render(pinned(plan, settings), settings)
        states = host.get_fact(PathStates, paths=tuple(files))
        differing = stale(files, states)
        if not differing:
            return ()
    return (f"{differing[0]} differs from what a deploy would put there: deploy first",)


@operation(is_idempotent=False)
def show(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Plan and measurement of every engine, side by side.

    Args:
        settings: the host's settings.
    """
    inventory = host_inventory(settings)
    bare = safe_plan(inventory.model_copy(update={"measurements": ()}), settings)
    now = safe_plan(inventory, settings)
    pairs = zip(bare.engines, now.engines, strict=True)
    lines = [line for old, new in pairs for line in _rows(old, new, inventory, bare.vllm)]
    yield FunctionCommand(_print, [[*lines, *now.warnings]], {})


def _rows(old: EnginePlan, new: EnginePlan, inventory: HostInventory, vllm: str) -> list[str]:
    found = measurement_of(old, inventory, vllm)
    return table(old, new, found) if found else [f"{new.name}: no measurement holds"]


def _print(state: State, host: Host, lines: list[str]) -> None:
    for line in lines:
        logger.info(f"{host.print_prefix}{line}")

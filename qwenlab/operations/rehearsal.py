"""Rehearsal: the host's plan is started with made-up weights before the real ones are fetched."""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import partial

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from qwenlab.engine.release import BuildStep
from qwenlab.facts.rehearsal import RehearsalResult, ServingCards
from qwenlab.operations.calibration import transient
from qwenlab.operations.checkpoint_job import job_of
from qwenlab.operations.engine import engine_state, wanted_release
from qwenlab.operations.patch import with_series
from qwenlab.operations.planning import expected_plan, host_plan
from qwenlab.operations.refusal import refusal
from qwenlab.planner.plan import HostPlan
from qwenlab.remote import LIBRARY
from qwenlab.service.rehearsal import RUN, in_the_way, job, lines, ok
from qwenlab.settings import Settings


@operation()
def check(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Refuse a host on whose planned cards an engine serves, unless it may be stopped; changes nothing.

    Args:
        settings: the host's settings.
    """
    serving = host.get_fact(ServingCards)
    names = in_the_way(expected_plan(settings), serving) if serving else []
    if names and not settings.rehearse_stop:
        yield refusal([_occupied(names)])
    else:
        host.noop("nothing serves on the planned cards, or it may be stopped")


@operation(is_idempotent=False)
def rehearse(
    settings: Settings, token: str | None, steps: tuple[BuildStep, ...]
) -> Generator[PyinfraCommand, None, None]:
    """Start the planned engines with made-up weights, print how they fare, leave nothing behind.

    Args:
        settings: the host's settings.
        token: access token of the hub.
        steps: as given to `engine.release`.
    """
    plan = host_plan(settings)
    if plan.status == "refused":
        yield refusal(one.text for one in plan.refusals)
        return
    steps, reasons = with_series(settings, steps)
    serving = host.get_fact(ServingCards)
    names = in_the_way(plan, serving)
    if names and not settings.rehearse_stop:
        reasons = (*reasons, _occupied(names))
    if reasons:
        yield refusal(reasons)
        return
    release = f"{settings.release_directory}/releases/{wanted_release(settings, engine_state(settings), steps)}"
    asked = job(plan, settings, release, partial(job_of, settings=settings, token=token))
    # the job may hold the hub's token
    yield StringCommand(f"umask 077 && cat > {RUN}.job", _stdin=json.dumps(asked))
    yield StringCommand(transient("qwen-rehearse", f"{LIBRARY}/rehearse.py", f"run {RUN}.job"))
    yield FunctionCommand(_show, [plan], {})


def _occupied(names: list[str]) -> str:
    return (
        f"{', '.join(names)} serves on the planned cards: stop it (systemctl stop qwen), or let the rehearsal stop it "
        "and start it again: --data qwen_rehearse_stop=True"
    )


def _show(state: State, host: Host, plan: HostPlan) -> bool:
    results = host.get_fact(RehearsalResult)
    for line in lines(plan, results):
        logger.info(f"{host.print_prefix}{line}")
    return ok(results)

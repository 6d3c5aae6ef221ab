"""Checkpoints on a host: fetched whole from the hub, by repository and commit."""

from __future__ import annotations

import shlex
from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from qwenlab.engine.release import CA_BUNDLE, BuildStep, proxies
from qwenlab.facts.file_states import PathStates
from qwenlab.operations.engine import engine_state, wanted_release
from qwenlab.operations.patch import with_series
from qwenlab.operations.planning import host_plan
from qwenlab.operations.refusal import refusal
from qwenlab.planner.plan import Checkpoint, HostPlan
from qwenlab.render import LIBRARY, checkpoint_directory
from qwenlab.settings import Settings


def checkpoints_of(plan: HostPlan) -> list[Checkpoint]:
    """Every checkpoint and drafter of the plan, once."""
    found = [one for engine in plan.engines for one in (engine.checkpoint, engine.drafter) if one is not None]
    return list(dict.fromkeys(found))


@operation()
def fetch(
    settings: Settings, token: str | None, steps: tuple[BuildStep, ...] = ()
) -> Generator[PyinfraCommand, None, None]:
    """Every checkpoint of the host's plan, fetched by the service user.

    Args:
        settings: the host's settings.
        token: access token of the hub; travels on stdin.
        steps: as given to `engine.release`, whose interpreter does the fetching.
    """
    plan = host_plan(settings)
    if plan.status == "refused":
        yield refusal(one.text for one in plan.refusals)
        return
    targets = {checkpoint_directory(one, settings): one for one in checkpoints_of(plan)}
    whole = host.get_fact(PathStates, paths=tuple(f"{path}/.complete" for path in targets))
    steps, reasons = with_series(settings, steps)
    if reasons:
        yield refusal(reasons)
        return
    release = wanted_release(settings, engine_state(settings), steps)
    python = f"{settings.release_directory}/releases/{release}/venv/bin/python"
    environment = {
        **proxies(settings),
        "HF_ENDPOINT": settings.hub_endpoint,
        "HF_HOME": f"{settings.home}/.cache/huggingface",
        "SSL_CERT_FILE": CA_BUNDLE,
    }
    for path, checkpoint in targets.items():
        if f"{path}/.complete" in whole:
            host.noop(f"{checkpoint.repo}@{checkpoint.revision[:12]} is whole")
            continue
        yield StringCommand(
            *("runuser", "-u", settings.user, "--", "env"),
            *(f"{name}={shlex.quote(value)}" for name, value in environment.items()),
            *(QuoteString(python), f"{LIBRARY}/fetch_checkpoint.py"),
            *(QuoteString(checkpoint.repo), checkpoint.revision, QuoteString(path)),
            _stdin=token or "\n",
        )

"""Rehearsal: does the plan fit, before twenty gigabytes are fetched?"""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import rehearsal
from qwenlab.settings import Settings
from tasks.checkpoints import fetching_programs
from tasks.engine import build_steps
from tasks.settings import Desired


@deploy("Check the rehearsal")
def check(settings: Settings) -> None:
    """Refuse a host that serves on the planned cards."""
    rehearsal.check(name="Are the planned cards free?", settings=settings)


@deploy("Rehearsal")
def run(desired: Desired) -> None:
    """Start the planned engines with made-up weights."""
    settings = desired.settings
    fetching_programs()
    rehearsal.rehearse(
        name="Engines with made-up weights",
        settings=settings,
        token=desired.secrets.hub_token,
        steps=build_steps(settings, desired.bundle),
    )

"""The checkpoints of the host's plan."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import checkpoint
from tasks.engine import build_steps
from tasks.settings import Desired


@deploy("Checkpoints")
def install(desired: Desired) -> None:
    """Fetch what the plan names."""
    settings = desired.settings
    checkpoint.fetch(
        name="Fetch checkpoints", settings=settings, token=desired.secrets.hub_token, steps=build_steps(settings)
    )

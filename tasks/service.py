"""The service: `systemctl start qwen`."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import calibration, generation, verification
from qwenlab.operations import status as reporting
from qwenlab.settings import Settings
from tasks.engine import build_steps


@deploy("Calibration")
def show_calibration(settings: Settings) -> None:
    """Say what was planned and what was measured."""
    calibration.show(name="Plan and measurement", settings=settings)


@deploy("Verification")
def verify(settings: Settings) -> None:
    """Ask every engine the battery."""
    if settings.verify_peers:
        verification.peers(name="Peer access between the cards", settings=settings)
    verification.verify(name="Every engine answers rightly", settings=settings)


@deploy("Way back")
def rollback() -> None:
    """Bring the former generation back."""
    generation.rollback(name="Former generation")


@deploy("Status")
def status(settings: Settings) -> None:
    """Say how the host serves."""
    # which release a bundle makes is known only with the bundle at hand, and a look at a host must not need it
    steps = build_steps(settings) if settings.serve and settings.offline is None else None
    reporting.report(name="Serving as asked", settings=settings, steps=steps)

"""The engine: an immutable release of vLLM."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.engine.release import BuildStep, pinned_steps
from qwenlab.operations import engine
from qwenlab.settings import Settings


def build_steps(settings: Settings) -> tuple[BuildStep, ...]:
    """What is done to the installed packages before a release counts as whole, beside the patch series."""
    return pinned_steps(settings)


@deploy("Engine")
def install(settings: Settings) -> None:
    """Build the release beside the running one."""
    engine.release(name="Release", settings=settings, steps=build_steps(settings))


@deploy("Engine")
def prune(settings: Settings) -> None:
    """Remove old releases."""
    engine.prune(name="Old releases", settings=settings)

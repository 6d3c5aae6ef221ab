"""The engine: an immutable release of vLLM."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.bundle.source import Bundle
from qwenlab.engine.release import BuildStep, bundle_steps, pinned_steps
from qwenlab.operations import engine
from qwenlab.settings import Settings
from tasks.settings import Desired


def build_steps(settings: Settings, bundle: Bundle | None = None) -> tuple[BuildStep, ...]:
    """What is done to the installed packages before a release counts as whole, beside the patch series."""
    return pinned_steps(settings) if bundle is None else (*pinned_steps(settings), *bundle_steps(bundle))


@deploy("Engine")
def install(desired: Desired) -> None:
    """Build the release beside the running one."""
    settings, bundle = desired.settings, desired.bundle
    engine.release(name="Release", settings=settings, steps=build_steps(settings, bundle), bundle=bundle)


@deploy("Engine")
def prune(settings: Settings) -> None:
    """Remove old releases."""
    engine.prune(name="Old releases", settings=settings)

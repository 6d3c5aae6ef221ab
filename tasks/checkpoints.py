"""The checkpoints of the host's plan."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import checkpoint, paths
from qwenlab.operations.paths import Directory
from qwenlab.programs import FETCHING, directories, modules
from qwenlab.settings import Settings
from tasks.engine import build_steps
from tasks.settings import Desired


def fetching_programs() -> None:
    """The programs that fetch, beside the others."""
    paths.directories(name="Directories of the programs", wanted=dict.fromkeys(directories(FETCHING), Directory()))
    paths.files(name="Programs that fetch", files=modules(FETCHING))


@deploy("Checkpoints")
def install(desired: Desired, python: str | None = None) -> None:
    """Fetch what the plan names: each host by itself, or one for all.

    Args:
        desired: what the host shall be.
        python: another interpreter than the release's.
    """
    settings, token = desired.settings, desired.secrets.hub_token
    steps = build_steps(settings, desired.bundle) if python is None else ()
    fetching_programs()
    if settings.model_source == "peer":
        checkpoint.claim(name="What each host needs and has", settings=settings)
    checkpoint.fetch(name="Fetch checkpoints", settings=settings, token=token, steps=steps, python=python)
    if settings.model_source == "peer":
        checkpoint.serve(name="Serve checkpoints to the other hosts", settings=settings, steps=steps, python=python)
        checkpoint.fetch(
            name="Fetch checkpoints from peers",
            settings=settings,
            token=None,
            steps=steps,
            from_peers=True,
            python=python,
        )
        checkpoint.stop_serving(name="Serve no longer", settings=settings)


@deploy("Checkpoints")
def prune(settings: Settings) -> None:
    """Remove revisions that nobody uses."""
    checkpoint.prune(name="Remove unused checkpoints", settings=settings)

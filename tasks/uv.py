"""uv, which builds the engine."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import engine
from tasks.settings import Desired


@deploy("uv")
def install(desired: Desired) -> None:
    """The pinned uv in /usr/local/bin."""
    engine.uv(name="Pinned uv", settings=desired.settings, bundle=desired.bundle)

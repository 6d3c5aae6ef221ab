"""uv, which builds the engine."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import engine
from qwenlab.settings import Settings


@deploy("uv")
def install(settings: Settings) -> None:
    """The pinned uv in /usr/local/bin."""
    engine.uv(name="Pinned uv", settings=settings)

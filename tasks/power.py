"""Power limits of the cards."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import power
from qwenlab.settings import Settings


@deploy("Power")
def configure(settings: Settings) -> None:
    """The limits that the settings ask for, now and after every boot."""
    if settings.engine == "cuda":
        power.limit(name="Power limits", settings=settings)

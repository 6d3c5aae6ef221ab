"""The gateway: one endpoint for every engine of a host. Its files and its start belong to the host's turn (rollout)."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import gateway
from qwenlab.settings import Settings


@deploy("Check the gateway")
def check(settings: Settings) -> None:
    """Refuse a host whose gateway could not listen, before anything is changed."""
    gateway.check(name="Is its port free?", settings=settings)


@deploy("Gateway")
def install(settings: Settings) -> None:
    """HAProxy from the distribution."""
    gateway.install(name="HAProxy", settings=settings)

"""The gateway: one endpoint for every engine of a host. Its files and its start belong to the host's turn (rollout)."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.bundle.source import debs_on_host
from qwenlab.operations import gateway
from qwenlab.settings import Settings
from tasks.settings import Desired


@deploy("Check the gateway")
def check(settings: Settings) -> None:
    """Refuse a host whose gateway could not listen, before anything is changed."""
    gateway.check(name="Is its port free?", settings=settings)


@deploy("Gateway")
def install(desired: Desired) -> None:
    """HAProxy from the distribution, or from the bundle."""
    gateway.install(name="HAProxy", settings=desired.settings, debs=debs_on_host(desired.bundle))

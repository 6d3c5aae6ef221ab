"""Monitoring: what each host offers, and Prometheus on the hosts of the group `monitoring`."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import monitoring
from qwenlab.settings import Settings


@deploy("Monitoring")
def offer(settings: Settings) -> None:
    """The host's own figures for those who may read them, and where they are. Called for every host: Prometheus' own
    host comes to its configuration only after all have told."""
    monitoring.node(name="Node exporter", settings=settings)
    monitoring.report(name="What Prometheus asks", settings=settings)


@deploy("Monitoring")
def watch(settings: Settings) -> None:
    """Prometheus, alerts and dashboard, where they are asked for."""
    monitoring.install(name="Prometheus", settings=settings)
    monitoring.watch(name="Every host is watched", settings=settings)

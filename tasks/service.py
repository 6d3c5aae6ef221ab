"""The service: `systemctl start qwen`."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import generation, paths, service, verification
from qwenlab.operations import status as reporting
from qwenlab.render import API_KEY, RemoteFile
from qwenlab.settings import Settings
from tasks.settings import Desired


@deploy("Service")
def configure(desired: Desired) -> None:
    """Plan, engine files, units and the key."""
    key = desired.secrets.api_key
    if not desired.settings.has_key:
        paths.absent(name="No API key", paths=(API_KEY,))
    elif key is None:
        service.generated_key(name="API key")
    else:
        paths.files(name="API key", files={API_KEY: RemoteFile(f"{key}\n", "600")})
    service.configure(name="Plan, engine files and units", settings=desired.settings)


@deploy("Service")
def activate(settings: Settings) -> None:
    """Start or restart what is not up to date; done when every engine answers."""
    service.serve(name="Every engine answers", settings=settings)


@deploy("Verification")
def verify(settings: Settings, rollback: bool = False) -> None:
    """Ask every engine the battery."""
    if settings.verify_peers:
        verification.peers(name="Peer access between the cards", settings=settings)
    verification.verify(name="Every engine answers rightly", settings=settings, rollback=rollback)


@deploy("Way back")
def remember() -> None:
    """Keep what serves well."""
    generation.remember(name="Last good generation")


@deploy("Way back")
def rollback() -> None:
    """Bring the former generation back."""
    generation.rollback(name="Former generation")


@deploy("Status")
def status(settings: Settings) -> None:
    """Say how the host serves."""
    reporting.report(name="Serving as asked", settings=settings)

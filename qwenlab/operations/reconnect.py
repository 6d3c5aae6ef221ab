"""A connection that was lost, made anew in the middle of an operation."""

from __future__ import annotations

from contextlib import suppress

from pyinfra.api.host import Host
from pyinfra.connectors.util import clear_askpass_cache


def reconnect(host: Host, reason: str) -> None:
    """A new connection to a host; whether it came is `host.connected`.

    pyinfra's `connect` does nothing while it takes the old connection for alive, and nobody tells it that it is dead
    (pyinfra 3.10.0 api/host.py).
    """
    clear_askpass_cache(host)
    with suppress(Exception):  # the connectors and paramiko each have their own
        host.disconnect()
    host.connected = False
    host.connect(reason=reason, show_errors=False)

"""The connection to a host: where it leads, how a command beside an operation uses it, and how it is made anew."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.api.host import Host
from pyinfra.connectors.util import clear_askpass_cache
from pyinfra.context import host as current

from qwenlab.settings import Settings


def address_of(settings: Settings) -> str:
    """Where other hosts reach the current one: as it is set, else as SSH does."""
    return str(settings.peer_address or current.data.get("ssh_hostname") or current.name)


def connector_arguments() -> dict[str, Any]:
    """How the current operation becomes root: commands that it does not yield need to be told themselves."""
    given: Mapping[str, Any] = current.current_op_global_arguments or {}
    return {key: given[key] for key in CONNECTOR_ARGUMENT_KEYS if key in given and key != "_stdin"}


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

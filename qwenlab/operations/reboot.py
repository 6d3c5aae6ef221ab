"""One reboot of a host, told by the boot id: reconnecting alone proves nothing.

The reboot is handed to systemd and the session closed: a session through a jump host would otherwise wait for an exit
status that never comes (pyinfra-dev/pyinfra 1708). Progress is judged by /proc/sys/kernel/random/boot_id (1110).
"""

from __future__ import annotations

import time
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors.util import clear_askpass_cache

from qwenlab.operations.connection import connector_arguments

BOOT_ID = "/proc/sys/kernel/random/boot_id"
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 15.0

# pyinfra's command patches threading, so waiting here lets the other hosts go on
_slots: dict[int, BoundedSemaphore] = {}
_lost: list[str] = []  # hosts of this run that did not come back


def runs_here(boot_id: str) -> bool:
    """Whether the host is the machine that pyinfra itself runs on."""
    try:
        return Path(BOOT_ID).read_text().strip() == boot_id
    except OSError:
        return False


def reboot_and_wait(boot_id: str, *, serial: int, timeout_s: int) -> FunctionCommand:
    """A command that reboots the host and waits until it is back with another boot id.

    Not more than `serial` hosts at a time; once a host has not come back, no further one is rebooted in this run.
    Fails for its host alone.
    """
    return FunctionCommand(_reboot, [boot_id, serial, timeout_s, connector_arguments()], {})


def _reboot(state: State, host: Host, boot_id: str, serial: int, timeout_s: int, arguments: dict[str, Any]) -> bool:
    with _slots.setdefault(serial, BoundedSemaphore(serial)):
        if _lost:
            return _say(
                host, f"not rebooted, since {_lost[0]} did not come back from its reboot: look at it, run again"
            )
        host.log("rebooting", log_func=logger.info)
        order = StringCommand("systemd-run --quiet --collect --on-active=1 systemctl reboot")
        done, output = host.run_shell_command(order, **arguments)
        if not done:
            return _say(host, f"the reboot could not be ordered: {output.stderr}")
        clear_askpass_cache(host)
        host.disconnect()
        if _is_back(host, boot_id, timeout_s):
            return True
        _lost.append(host.name)
        return _say(
            host,
            f"did not come back within {timeout_s} s of its reboot ({_last_error(host)}): see its console, or raise "
            "qwen_reboot_timeout_s",
        )


def _is_back(host: Host, boot_id: str, timeout_s: int) -> bool:
    deadline = time.monotonic() + timeout_s
    wait = FIRST_WAIT_S
    while time.monotonic() < deadline:
        time.sleep(min(wait, max(0.0, deadline - time.monotonic())))
        wait = min(wait * 1.5, LONGEST_WAIT_S)
        host.connect(show_errors=False)
        if not host.connected:
            continue
        try:
            done, output = host.run_shell_command(StringCommand(f"cat {BOOT_ID}"), _timeout=20)
        except Exception as error:  # any error of the transport: the host is going down
            host.connector_data["qwenlab_reboot_error"] = str(error)
            done = False
        if done and output.stdout.strip() not in ("", boot_id):
            clear_askpass_cache(host)
            return True
        host.disconnect()
    return False


def _last_error(host: Host) -> str:
    return str(host.connector_data.get("qwenlab_reboot_error") or "no answer over SSH")


def _say(host: Host, text: str) -> bool:
    host.log_styled(text, fg="red", log_func=logger.error)
    return False

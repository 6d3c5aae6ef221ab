"""What to do about a host that pyinfra cannot log in to, said below pyinfra's own error; and about a run without hosts.

pyinfra runs deploy code only for hosts that it reached, and offers no hook before that; its log is the one place that
knows of the others.
"""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from pyinfra.context import ctx_state, state

ADVICE = (
    # part of pyinfra's message -> what to do
    ("Could not resolve hostname", "its name is unknown: check the spelling, or give the host an ssh_hostname"),
    (
        "Authentication error",
        "its SSH server does not accept this login: check ssh_user and ssh_key, or run ssh-copy-id USER@HOST",
    ),
    (
        "Host key",
        "it has another SSH key than before: if you reinstalled it, remove the old one with ssh-keygen -R HOST",
    ),
    (
        "No such private key file",
        "the file that ssh_key names does not exist on this machine",
    ),
    (
        "Could not connect ([Errno 2] No such file",  # pyinfra adds the key of a new host to it
        "the list of known hosts cannot be written: make its folder, mkdir -m 700 ~/.ssh",
    ),
    (
        "Could not connect",
        "it does not answer: is it on, is sshd running, are ssh_hostname and ssh_port right? Try: ssh HOST",
    ),
    (
        "SSH error (No authentication methods available",
        "this machine has no key to offer it: name one with ssh_key beside the host, or add one to the SSH agent",
    ),
    ("SSH error", "its SSH server broke off: try ssh HOST, and look at journalctl -u ssh there"),
)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def advice(message: str) -> str | None:
    """One line for the owner of the host that `message` is about; None when it is about something else."""
    plain = COLOUR.sub("", message).strip()
    match = re.match(r"\[(?P<host>[^\]]+)\]\s*(?P<error>.*)", plain, re.DOTALL)
    if match is None:
        return None
    for sign, text in ADVICE:
        if match["error"].startswith(sign):
            return f"[{match['host']}] what to do: {text}"
    return None


class ConnectionAdvice(logging.Handler):
    """Follows pyinfra's connection errors with `advice`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Called for every line that pyinfra logs."""
        if record.levelno >= logging.ERROR and (text := advice(record.getMessage())):
            logging.getLogger(record.name).warning("%s", text)


class NoHosts(logging.Handler):
    """Ends a run that has no host, which pyinfra would call a success without running any deploy code.

    The last thing that pyinfra says before it connects is the first moment at which inventory and limits are known.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Called for every line that pyinfra logs. Raises CliError, which pyinfra shows as one line and exit code 1."""
        if record.getMessage() != "--> Connecting to hosts..." or not ctx_state.isset():
            return
        hosts = list(state.inventory)
        if not hosts:
            raise _cli_error("the inventory names no host: add one line for each, as inventory/lab.py shows")
        if not any(state.is_host_in_limit(host) for host in hosts):
            names = ", ".join(host.name for host in hosts[:10])
            raise _cli_error(f"--limit and --exclude leave no host of the inventory, which has {names}")


def prepare_ssh() -> None:
    """What pyinfra's SSH takes for granted: a list of known hosts, as `ssh` itself makes at its first use.

    And paramiko, which logs the traceback of a server that broke off, is quiet: pyinfra tells the same in one line.
    """
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    with suppress(OSError, RuntimeError):  # a home that is not there or cannot be written: pyinfra says so, see ADVICE
        folder = Path("~/.ssh").expanduser()
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "known_hosts").touch(mode=0o600)


def _cli_error(text: str) -> Exception:
    """pyinfra's own exception for its command line; that package patches the interpreter when it is imported."""
    error: Exception = import_module("pyinfra_cli.exceptions").CliError(text)
    return error

"""The transient units that fetch and serve checkpoints under the service user: commands that start and end them.

A fetch goes on when the SSH session ends. Job files lie below /run for the service user alone and are removed as soon
as they are read.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyinfra.api.command import QuoteString, StringCommand

from qwenlab.operations.checkpoint_job import RUN
from qwenlab.operations.checkpoint_progress import locked
from qwenlab.remote import LIBRARY
from qwenlab.settings import Settings

SERVER_UNIT = "qwen-checkpoints"
SERVER_JOB = f"{RUN}/{SERVER_UNIT}.job"
SERVER_WITHIN_S = 20


def _run(settings: Settings, unit: str, properties: Iterable[str], command: Iterable[str]) -> str:
    """Shell that starts a command of the service user as a unit."""
    return shlex.join(
        [
            *("systemd-run", "--quiet", "--collect", f"--unit={unit}"),
            *(f"--uid={settings.user}", f"--gid={settings.user}"),
            *(f"--property={one}" for one in ("NoNewPrivileges=yes", "PrivateTmp=yes", *properties)),
            "--setenv=PYTHONDONTWRITEBYTECODE=1",
            *command,
        ]
    )


def start_fetch(settings: Settings, python: str, unit: str, job: Mapping[str, Any]) -> StringCommand:
    """The command that starts a fetch, its job on stdin; one that runs already is left alone."""
    user, path = shlex.quote(settings.user), f"{RUN}/{unit}.job"
    mine = f"{path}.$$"
    run = _run(settings, unit, ["UMask=0022"], [python, f"{LIBRARY}/fetch_checkpoint.py", path])
    return StringCommand(
        f"umask 077 && install -d -m 755 -o {user} {RUN} && trap 'rm -f {mine}' EXIT && cat > {mine} && {locked()}",
        f"if ! systemctl is-active --quiet {unit}; then",
        # one that has just failed or is ending would keep the name
        f"systemctl stop {unit} 2> /dev/null;",
        f"chown {user} {mine} && mv -f {mine} {path} && rm -f {RUN}/{unit}.json &&",
        f"{{ {run} || {{ rm -f {path}; false; }}; }};",
        "fi",
        _stdin=json.dumps(job),
    )


def start_server(settings: Settings, python: str, job: Mapping[str, Any]) -> Iterator[StringCommand]:
    """The commands that start the server of checkpoints, its job on stdin, and wait until it answers."""
    properties = ("ProtectSystem=strict", "CapabilityBoundingSet=", f"WorkingDirectory={LIBRARY}")
    program = [python, "-m", "qwenlab.remote.checkpoint.serve", SERVER_JOB]
    yield StringCommand(
        f"install -d -m 755 -o {shlex.quote(settings.user)} {RUN} && cat > {SERVER_JOB} &&",
        f"systemctl stop {SERVER_UNIT} 2> /dev/null;",
        _run(settings, SERVER_UNIT, properties, program),
        _stdin=json.dumps(job),
    )
    port = settings.peer_port
    probe = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2).close()"
    yield StringCommand(
        f"for second in $(seq {SERVER_WITHIN_S}); do python3 -c {shlex.quote(probe)}",
        "2> /dev/null && exit 0; sleep 1; done; echo 'the server of checkpoints does not answer on",
        f"http://127.0.0.1:{port}/: is the port taken (qwen_peer_port)? See journalctl -u {SERVER_UNIT}' >&2; exit 1",
    )


def stop_server() -> StringCommand:
    """The command that ends the server of checkpoints, running or not."""
    return StringCommand(f"systemctl stop {SERVER_UNIT} 2> /dev/null; rm -f", QuoteString(SERVER_JOB))

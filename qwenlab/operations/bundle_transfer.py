"""Carrying a bundle's files to a host: in chunks over the host's own connection, resumed, then held against digests.

Whatever reaches the host goes through pyinfra's connector, so that keys, jump hosts and sudo are those of the deploy.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files as package_files
from io import BytesIO
from pathlib import Path
from typing import Any

from pyinfra import logger
from pyinfra.api.command import StringCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from qwenlab.bundle.manifest import MANIFEST, BundledFile, digest
from qwenlab.bundle.source import Bundle
from qwenlab.facts.bundle import LIST, PART, sizes
from qwenlab.operations.connection import reconnect
from qwenlab.operations.progress import Reading
from qwenlab.operations.progress_board import Shown
from qwenlab.remote.check_bundle import DAMAGED

CHUNK = 16 << 20  # bytes that are sent at once, and that are sent again at most after a lost connection
ATTEMPTS = 5
PAUSE_S = 3.0
PATHS_AT_ONCE = 200  # of a command line

_known: dict[tuple[str, int, int], str] = {}


class Lost(Exception):
    """The host could not be spoken to."""


def local_damage(root: Path, wanted: Sequence[BundledFile]) -> list[str]:
    """What of these files is missing or altered on the control machine. Each is read once a run, for all hosts."""
    wrong = []
    for file in wanted:
        path = root / file.path
        try:
            state = path.stat()
            key = (str(path), state.st_size, state.st_mtime_ns)
            if key not in _known:
                _known[key] = digest(path)
            if _known[key] != file.sha256:
                wrong.append(f"{file.path}: its content is not what the manifest says")
        except OSError as error:
            wrong.append(f"{file.path}: {error.strerror}")
    return wrong


def check(state: State, host: Host, directory: str, places: Sequence[str], arguments: Mapping[str, Any]) -> bool:
    """Hold a bundle that lies on the host against its digests; whether it is whole."""
    try:
        damaged = _damaged(host, directory, places, arguments)
    except Lost as error:
        text = f"refused: the bundle at {directory} could not be checked: {error}"
        host.log_styled(text, fg="red", log_func=logger.error)
        return False
    for path in damaged:
        text = f"refused: {directory}/{path} is damaged: copy the bundle anew"
        host.log_styled(text, fg="red", log_func=logger.error)
    return not damaged


def carry(
    state: State,
    host: Host,
    bundle: Bundle,
    wanted: Sequence[BundledFile],
    arguments: Mapping[str, Any],
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Bring files of a bundle to the host, and let those that are whole have their names; whether all came.

    Args:
        wanted: what the host needs; what lies there already is not sent again.
        arguments: how commands on the host become root.
    """
    transfer = _Transfer(host, bundle, wanted, arguments)
    for attempt in range(ATTEMPTS):
        if attempt:
            sleep(PAUSE_S * attempt)
            reconnect(host, "to go on with the bundle")
        try:
            damaged = transfer.run()
        except Lost:
            continue
        if not damaged:
            host.log(f"{len(wanted)} files of the bundle are there and whole")
            return True
        logger.warning(f"{host.print_prefix}damaged on the way, sent again: {', '.join(damaged)}")
    text = (
        f"the bundle could not be brought to {bundle.directory} (connection or disk): deploy again to go on from here"
    )
    host.log_styled(text, fg="red", log_func=logger.error)
    return False


class _Transfer:
    def __init__(self, host: Host, bundle: Bundle, wanted: Sequence[BundledFile], arguments: Mapping[str, Any]) -> None:
        self.host, self.bundle, self.wanted, self.arguments = host, bundle, wanted, dict(arguments)
        self.total = sum(file.size for file in wanted)
        if bundle.local is None:
            raise ValueError("a bundle that is on the host is not carried")
        self.local = bundle.local

    def run(self) -> list[str]:
        """Send what is missing; returns the paths that arrived damaged. Raises Lost."""
        self._begin()
        there = self._there()
        missing = [file for file in self.wanted if there.get(file.path) != file.size]
        done = self.total - sum(file.size for file in missing)
        with Shown(self.host, "bundle") as shown:
            for file in missing:
                begun = there.get(file.path + PART, 0)
                begun = begun if begun <= file.size else 0
                done += begun
                for size in self._send(file, begun):
                    done += size
                    shown.tell(Reading("carrying", done=done, total=self.total))
        return _damaged(self.host, self.bundle.directory, [file.path for file in missing], self.arguments)

    def _begin(self) -> None:
        root = self.bundle.directory
        folders = sorted({str(Path(root, file.path).parent) for file in self.wanted})
        for first in range(0, len(folders), PATHS_AT_ONCE):
            self._run("umask 022 && mkdir -p", *map(shlex.quote, folders[first : first + PATHS_AT_ONCE]))
        self._put((self.local / MANIFEST).read_bytes(), f"{root}/{MANIFEST}")

    def _there(self) -> dict[str, int]:
        return sizes(self._run(LIST.replace("@DIRECTORY@", shlex.quote(self.bundle.directory)), "; true"))

    def _send(self, file: BundledFile, begun: int) -> Any:
        """Append the file from `begun` on to its `.part`, yielding the bytes of each chunk."""
        part, chunk = f"{self.bundle.directory}/{file.path}{PART}", f"{self.bundle.directory}/.chunk"
        with (self.local / file.path).open("rb") as stream:
            stream.seek(begun)
            if begun == 0:
                content = stream.read(CHUNK)
                self._put(content, part)
                yield len(content)
            while content := stream.read(CHUNK):
                self._put(content, chunk)
                self._run("cat", shlex.quote(chunk), ">>", shlex.quote(part), "&& rm -f", shlex.quote(chunk))
                yield len(content)

    def _put(self, content: bytes, path: str) -> None:
        try:
            sent = self.host.put_file(BytesIO(content), path, **self.arguments)
        except Exception as error:  # paramiko, the socket and pyinfra's connectors each have their own
            raise Lost(str(error)) from error
        if not sent:
            raise Lost(path)

    def _run(self, *words: str) -> list[str]:
        return _run(self.host, StringCommand(*words), self.arguments)


def _damaged(host: Host, directory: str, places: Sequence[str], arguments: Mapping[str, Any]) -> list[str]:
    """Paths that are not as the manifest says, as check_bundle.py finds on the host."""
    program = package_files("qwenlab.remote").joinpath("check_bundle.py").read_text()
    found: list[str] = []
    for first in range(0, len(places), PATHS_AT_ONCE):
        some = [shlex.quote(place) for place in places[first : first + PATHS_AT_ONCE]]
        command = StringCommand("python3 -", shlex.quote(directory), *some)
        lines = _run(host, command, {**arguments, "_stdin": program, "_success_exit_codes": [0, DAMAGED]}, aloud=True)
        found += [text.removeprefix("damaged: ") for text in lines if text.startswith("damaged: ")]
    return found


def _run(host: Host, command: StringCommand, arguments: Mapping[str, Any], aloud: bool = False) -> list[str]:
    try:
        success, output = host.run_shell_command(command, print_output=aloud, **arguments)
    except Exception as error:
        raise Lost(str(error)) from error
    if not success:
        raise Lost(output.stderr)
    return output.stdout_lines

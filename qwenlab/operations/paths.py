"""Files and directories: the one way by which content gets onto a host.

Content travels on stdin into a new file of mode 0600, which gets its rights and then its name. So a file is never
half written, a secret is never readable by others, not even for a moment, and neither command lines nor logs nor
`--diff` show content.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePosixPath

from pyinfra.api.command import QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from qwenlab.facts.file_states import PathState, PathStates
from qwenlab.render import RemoteFile


@dataclass(frozen=True)
class Directory:
    """Rights of one directory."""

    user: str = "root"
    group: str = "root"
    mode: str = "755"


def write(path: str, file: RemoteFile) -> StringCommand:
    """The command that puts one file in place."""
    fresh = QuoteString(f"{path}.new")
    return StringCommand(
        *("umask 077 &&", "cat >", fresh, "&&", "chown", QuoteString(f"{file.user}:{file.group}"), fresh),
        *("&&", "chmod", file.mode, fresh, "&&", "mv -f", fresh, QuoteString(path)),
        _stdin=file.content,
    )


def write_checked(path: str, file: RemoteFile, check: str) -> StringCommand:
    """The command that puts a configuration in place once its program takes it: `check`, with the new file behind."""
    fresh = QuoteString(f"{path}.new")
    return StringCommand(
        *("cat >", fresh, "&& chmod", file.mode, fresh),
        *("&& {", check, fresh, ">&2 || { rm -f", fresh, "; exit 1; }; }"),
        *("&& mv -f", fresh, QuoteString(path)),
        _stdin=file.content,
    )


def stale(files: Mapping[str, RemoteFile], states: Mapping[str, PathState]) -> list[str]:
    """The paths whose content, rights or owner differ from what is wanted."""
    return [
        path
        for path, file in files.items()
        if states.get(path)
        != PathState("file", file.mode, file.user, file.group, sha256(file.content.encode()).hexdigest())
    ]


def put(files: Mapping[str, RemoteFile]) -> Generator[StringCommand, None, list[str]]:
    """Yield the commands for those files that differ; returns their paths. For use inside operations.

    Every content must end with a newline: pyinfra adds a missing one on the way.
    """
    states = host.get_fact(PathStates, paths=tuple(files))
    changed = stale(files, states)
    for path in changed:
        yield write(path, files[path])
    return changed


def put_with_folders(files: Mapping[str, RemoteFile]) -> Generator[StringCommand, None, list[str]]:
    """The same, with the folders that are not there yet."""
    folders = tuple(dict.fromkeys(str(PurePosixPath(path).parent) for path in files))
    there = host.get_fact(PathStates, paths=folders)
    for folder in folders:
        if folder not in there:
            yield StringCommand("install -d -m 755", QuoteString(folder))
    return (yield from put(files))


@operation()
def files(files: Mapping[str, RemoteFile]) -> Generator[StringCommand, None, None]:
    """Put files in place.

    Args:
        files: path to content and rights.
    """
    changed = yield from put(files)
    if not changed:
        host.noop(f"{len(files)} files are as wanted")


@operation()
def directories(wanted: Mapping[str, Directory]) -> Generator[StringCommand, None, None]:
    """Make directories with owner and mode; parents come before children in `wanted`.

    Args:
        wanted: path to rights.
    """
    states = host.get_fact(PathStates, paths=tuple(wanted))
    for path, rights in wanted.items():
        if states.get(path) != PathState("directory", rights.mode, rights.user, rights.group, None):
            yield StringCommand(
                "install", "-d", "-o", rights.user, "-g", rights.group, "-m", rights.mode, QuoteString(path)
            )


@operation()
def absent(paths: tuple[str, ...]) -> Generator[StringCommand, None, None]:
    """Remove files.

    Args:
        paths: files that must not be there.
    """
    for path in host.get_fact(PathStates, paths=paths):
        yield StringCommand("rm", "-f", QuoteString(path))

"""Digest, rights and owner of many paths in one round trip."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase


@dataclass(frozen=True)
class PathState:
    """Attributes:
    kind: "file", "directory" or "other".
    mode: octal digits, e.g. "640".
    sha256: of a file; None otherwise.
    """

    kind: str
    mode: str
    user: str
    group: str
    sha256: str | None


class PathStates(FactBase[dict[str, PathState]]):
    """Path to its state; paths that do not exist are left out."""

    def command(self, paths: tuple[str, ...]) -> str:
        """One line a path: kind, mode, user, group, digest or -, path."""
        listed = " ".join(shlex.quote(path) for path in paths)
        return (
            f'for path in {listed}; do [ -e "$path" ] || continue; '
            'kind=other; digest=-; if [ -d "$path" ]; then kind=directory; '
            'elif [ -f "$path" ]; then kind=file; digest=$(sha256sum < "$path" | cut -d\' \' -f1); fi; '
            'echo "path=$kind $(stat -L -c \'%a %U %G\' "$path") $digest $path"; done; true'
        )

    def process(self, output: list[str]) -> dict[str, PathState]:
        """Parse; an odd answer fails this host alone."""
        found: dict[str, PathState] = {}
        for line in output:
            key, _, value = line.strip().partition("=")
            if key != "path":
                continue
            words = value.split(" ", 5)
            if len(words) != 6:
                raise FactProcessError(f"the state of a file could not be read: {line!r}")
            kind, mode, user, group, digest, path = words
            found[path] = PathState(kind, mode, user, group, None if digest == "-" else digest)
        return found

    @staticmethod
    def default() -> dict[str, PathState]:
        """No path exists."""
        return {}

"""What of the engine is on a host: uv, Pythons, built releases, fetched checkpoints."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading

SCRIPT = r"""
echo "uv=$(@UV@ --version 2>/dev/null | cut -d' ' -f2)"
for python in /usr/bin/python3 /usr/bin/python3.[0-9]* /usr/local/bin/python3.[0-9]*; do
    [ -x "$python" ] || continue
    case $python in *-config) continue;; esac
    echo "python=$python $("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"
done
cd @RELEASES@ 2>/dev/null || exit 0
echo "current=$(readlink current)"
for release in releases/*/release.json; do
    # the interpreter is a link to the distribution's or uv's, which may have been removed since
    [ -e "$release" ] && [ -x "${release%/*}/venv/bin/python" ] &&
        echo "complete=$(stat -c %Y "$release") $(basename "${release%/*}")"
done
true
"""


@dataclass(frozen=True)
class EngineState:
    """Attributes:
    uv: version of the uv at its place, or None.
    pythons: minor version ("3.11") to interpreter, the distribution's own first.
    current: id of the release that `current` points to, or None.
    complete: ids of whole releases, newest first.
    """

    uv: str | None = None
    pythons: dict[str, str] = field(default_factory=dict)
    current: str | None = None
    complete: tuple[str, ...] = ()


def parse(lines: list[str]) -> EngineState:
    """`EngineState` from the script's output.

    Raises:
        ValueError: a line is not as the script writes it.
    """
    uv: str | None = None
    current: str | None = None
    pythons: dict[str, str] = {}
    built: list[tuple[int, str]] = []
    for line in lines:
        key, _, value = line.strip().partition("=")
        if key == "uv":
            uv = value or None
        elif key == "current":
            current = value.rsplit("/", 1)[-1] or None
        elif key == "python":
            path, _, version = value.partition(" ")
            if version:
                pythons.setdefault(version, path)
        elif key == "complete":
            time, name = value.split(" ", 1)
            built.append((int(time), name))
    newest_first = tuple(name for _, name in sorted(built, reverse=True))
    return EngineState(uv, pythons, current, newest_first)


class EngineReleases(FactBase[EngineState]):
    """`EngineState` of a host."""

    def command(self, directory: str, uv: str) -> str:
        """`directory`: `qwen_release_directory`; `uv`: where qwenlab's uv lies."""
        return SCRIPT.replace("@RELEASES@", shlex.quote(directory)).replace("@UV@", shlex.quote(uv)).strip()

    def process(self, output: list[str]) -> EngineState:
        """Parse; an odd answer fails this host alone."""
        with reading("the host's releases"):
            return parse(list(output))

    @staticmethod
    def default() -> EngineState:
        """Nothing there."""
        return EngineState()

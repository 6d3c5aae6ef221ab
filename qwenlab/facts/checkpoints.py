"""Which checkpoints of a host are whole, and the addresses at which its peers may see it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import Any

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading, value_of
from qwenlab.remote import LIBRARY


@dataclass(frozen=True)
class CheckpointState:
    """What one directory holds.

    Attributes:
        whole: it has a manifest and its files are as that says, as far as was asked.
        wrong: files that are not.
        manifest: of a whole one.
    """

    whole: bool = False
    wrong: tuple[str, ...] = ()
    manifest: dict[str, Any] | None = field(default=None, hash=False)


class CheckpointStates(FactBase[dict[str, CheckpointState]]):
    """Directory to its state; empty on a host that qwenlab has not been on."""

    def command(self, how: str, directories: tuple[str, ...]) -> str:
        """Ask qwenlab's own program on the host."""
        listed = " ".join(shlex.quote(path) for path in directories)
        return (
            f"test ! -e {LIBRARY}/qwenlab/remote/checkpoint/verify.py || "
            f"(cd {LIBRARY} && python3 -B -m qwenlab.remote.checkpoint.verify {how} {listed})"
        )

    def process(self, output: list[str]) -> dict[str, CheckpointState]:
        """Parse; an odd answer fails this host alone."""
        with reading("the checkpoints' states"):
            return {
                path: CheckpointState(one["whole"], tuple(one["wrong"]), one["manifest"])
                for path, one in value_of(output).items()
            }

    @staticmethod
    def default() -> dict[str, CheckpointState]:
        """Nothing is there."""
        return {}


class HostAddresses(FactBase[list[str]]):
    """Addresses of the host's interfaces, without loopback."""

    def command(self) -> str:
        """`hostname -I` is part of Debian's base system."""
        return "hostname -I || true"

    def process(self, output: list[str]) -> list[str]:
        """Words."""
        return " ".join(output).split()

    @staticmethod
    def default() -> list[str]:
        """None."""
        return []


@dataclass(frozen=True)
class UnusedCheckpoint:
    """A revision that no plan, kept generation or running engine uses; `bytes` are what its removal frees."""

    path: str
    bytes: int
    whole: bool


class UnusedCheckpoints(FactBase[list[UnusedCheckpoint]]):
    """What could be pruned."""

    def command(self, models: str, generations: str, etc: str) -> str:
        """Ask qwenlab's own program on the host."""
        listed = " ".join(shlex.quote(path) for path in (models, generations, etc))
        return (
            f"test ! -e {LIBRARY}/qwenlab/remote/checkpoint/prune.py || "
            f"(cd {LIBRARY} && python3 -B -m qwenlab.remote.checkpoint.prune {listed})"
        )

    def process(self, output: list[str]) -> list[UnusedCheckpoint]:
        """Parse; an odd answer fails this host alone."""
        with reading("the unused checkpoints"):
            return [UnusedCheckpoint(one["path"], one["bytes"], one["whole"]) for one in value_of(output)]

    @staticmethod
    def default() -> list[UnusedCheckpoint]:
        """None."""
        return []


class ResolvedBranches(FactBase[dict[str, str]]):
    """Directory of a branch to the commit that it was resolved to when it was first fetched; others are left out."""

    def command(self, directories: tuple[str, ...]) -> str:
        """The fetcher leaves a link from the branch's name to its commit."""
        listed = " ".join(shlex.quote(path) for path in directories)
        return f'for path in {listed}; do [ ! -L "$path" ] || echo "branch=$(readlink "$path") $path"; done'

    def process(self, output: list[str]) -> dict[str, str]:
        """Parse."""
        found = {}
        for line in output:
            key, _, value = line.partition("=")
            commit, _, path = value.partition(" ")
            if key == "branch" and path:
                found[path] = commit
        return found

    @staticmethod
    def default() -> dict[str, str]:
        """None was fetched."""
        return {}

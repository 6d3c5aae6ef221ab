"""What a host keeps of what it served: the last good generation, and what failed and was rolled back."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading, value_of

STATE = "python3 /usr/local/lib/qwen/generation.py state 2>/dev/null; true"


class GenerationSaved(FactBase[bool]):
    """True when `save` has nothing to do."""

    def command(self) -> str:
        """A host without the program has saved nothing."""
        return STATE

    def process(self, output: list[str]) -> bool:
        """One word."""
        return output[-1:] == ["saved"]

    @staticmethod
    def default() -> bool:
        """Nothing was said."""
        return False


class ServedRelease(FactBase[str | None]):
    """The release that the host's engines are started from; None where nothing says."""

    def command(self) -> str:
        """The line before `GenerationSaved`'s."""
        return STATE

    def process(self, output: list[str]) -> str | None:
        """A program of an earlier qwenlab does not name it."""
        return output[-2] if len(output) > 1 else None

    @staticmethod
    def default() -> None:
        """Nothing was said."""


@dataclass(frozen=True)
class FailedAttempt:
    """What was rolled back by itself.

    Attributes:
        digest: name of the attempt, empty when nothing failed.
        release: engine release of the attempt; reason: why it was given up; at: when, in UTC.
    """

    digest: str = ""
    release: str = ""
    reason: str = ""
    at: str = ""


@dataclass(frozen=True)
class Attempts:
    """The last deploy's name for its files, and the attempt that failed last."""

    last: str = ""
    failed: FailedAttempt = FailedAttempt()


class DeployAttempts(FactBase[Attempts]):
    """`Attempts` of a host."""

    def command(self) -> str:
        """Nothing on a host without the program, or with one that does not know attempts."""
        return "python3 /usr/local/lib/qwen/generation.py attempt 2>/dev/null; true"

    def process(self, output: list[str]) -> Attempts:
        """Raises `FactProcessError` when it is something else; that fails this host alone."""
        with reading("what was deployed before"):
            said = value_of(output)
            return Attempts(said["attempt"], FailedAttempt(**said["failed"]))

    @staticmethod
    def default() -> Attempts:
        """Nothing was deployed before."""
        return Attempts()

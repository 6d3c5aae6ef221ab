"""The series of one vLLM release: `patches/<version>/series.yaml`, its diffs and the digests of what they make."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from qwenlab.patches.applier import digest
from qwenlab.record import Record

Kind = Literal["fix", "feature", "backport", "local"]


class SeriesError(ValueError):
    """The series itself is wrong: a diff is missing, or does not have the digest that the manifest states."""


class Condition(Record):
    """When a plan needs a patch: every part that is given must hold. See `qwenlab.patches.needs`."""

    text: str = Field(description="the condition in words")
    pp_at_least: int | None = Field(default=None, description="pipeline stages")
    method: tuple[Literal["none", "mtp", "dflash"], ...] | None = Field(default=None, description="speculation")
    argument: str | None = Field(default=None, description="vLLM argument that the plan passes")
    vision: bool | None = None
    keyed: bool | None = Field(default=None, description="the engine is given an API key")
    checkpoint: bool = Field(default=False, description="the catalogue names the patch for the plan's checkpoint")
    named: bool = Field(default=False, description="a planning rule names it: it depends on what no plan holds")


class Patch(Record):
    """One topic of the series."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    title: str
    kind: Kind
    files: tuple[str, ...]
    breaks_without: str
    upstream: str
    needed_when: Condition
    conflicts: tuple[str, ...] = ()
    retire_when: str
    tests: tuple[str, ...] = Field(description="red on stock and green patched, pytest node ids without parameters")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class NotNeeded(Record):
    """A patch that other series carry and this release does without, with the reason."""

    topic: str
    why: str


class Series(Record):
    """All patches of one vLLM release, in order."""

    vllm: str
    patches: tuple[Patch, ...]
    not_needed: tuple[NotNeeded, ...] = ()

    def patch(self, name: str) -> Patch:
        """The patch of that id. Raises KeyError."""
        for patch in self.patches:
            if patch.id == name:
                return patch
        raise KeyError(name)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids in series order."""
        return tuple(patch.id for patch in self.patches)


class FileDigests(Record):
    """SHA-256 of one file: as released, and for every choice of the patches that touch it ("a+b", series order)."""

    stock: str
    patched: dict[str, str]


def series_root() -> Path:
    """The folder with one folder a release: beside the package in a checkout, inside it in a wheel."""
    packaged = Path(__file__).parent / "series"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "patches"


def releases() -> tuple[str, ...]:
    """Releases that have a series, newest first."""
    found = [path.parent.name for path in series_root().glob("*/series.yaml")]
    return tuple(sorted(found, key=lambda name: [int(part) for part in name.split(".")], reverse=True))


@cache
def load(vllm: str, root: Path | None = None) -> Series:
    """The series of a release.

    Raises:
        SeriesError: there is none, or its manifest does not validate.
    """
    path = (root or series_root()) / vllm / "series.yaml"
    try:
        return Series.model_validate(yaml.safe_load(path.read_text()))
    except OSError:
        raise SeriesError(f"no patch series for vLLM {vllm}; there is one for {', '.join(releases())}") from None
    except ValueError as error:
        raise SeriesError(f"{path}: {error}") from None


@cache
def file_digests(vllm: str, root: Path | None = None) -> dict[str, FileDigests]:
    """Digests of every file that the series touches, by path below site-packages."""
    path = (root or series_root()) / vllm / "digests.json"
    try:
        data = json.loads(path.read_text())
    except OSError:
        raise SeriesError(f"{path} is missing; write it with `python -m qwenlab patches seal`") from None
    return {name: FileDigests.model_validate(value) for name, value in data["files"].items()}


def diff(vllm: str, patch: Patch, root: Path | None = None, *, verify: bool = True) -> str:
    """Text of a patch.

    Raises:
        SeriesError: the file is missing or does not have the manifest's digest.
    """
    path = (root or series_root()) / vllm / f"{patch.id}.patch"
    try:
        text = path.read_text()
    except OSError:
        raise SeriesError(f"{path} is missing") from None
    if verify and digest(text.encode()) != patch.sha256:
        raise SeriesError(f"{path}: the SHA-256 is not that of series.yaml; the file was changed after it was sealed")
    return text

"""The bundle's manifest: what it holds, with a digest for every file, and what was left out on purpose."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import Field, ValidationError, field_validator

from qwenlab import __version__
from qwenlab.record import Record

MANIFEST = "bundle.json"
CHUNK = 1 << 20


class BundleError(RuntimeError):
    """The bundle cannot be made, joined or trusted; the text says what to do."""


class BundledFile(Record):
    """One file below the bundle's directory. `size` in bytes."""

    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size: int = Field(ge=0)

    @field_validator("path")
    @classmethod
    def _below(cls, path: str) -> str:
        """A manifest from elsewhere must not name files outside the bundle."""
        if not path or path.startswith("/") or ".." in PurePosixPath(path).parts or "\n" in path:
            raise ValueError(f"{path!r} does not lie below the bundle")
        return path


class LeftOut(Record):
    """A package of the lock that does not travel: the target has it, or the maker of the bundle said so."""

    name: str
    version: str
    target_has: str | None = None
    why: str


class Manifest(Record):
    """`bundle.json`. Paths are relative to the bundle's directory."""

    schema_version: Literal[1] = 1
    qwenlab: str
    engine: str
    vllm: str
    python: str = Field(description="minor version that the wheels are for, e.g. '3.12'")
    platform: str = Field(description="wheel platform, e.g. 'manylinux_2_28_x86_64'")
    lock_sha256: str
    files: tuple[BundledFile, ...]
    left_out: tuple[LeftOut, ...] = ()
    trimmed: tuple[str, ...] = Field(default=(), description="members that were dropped from wheels")

    def wheels(self) -> tuple[BundledFile, ...]:
        """The wheels of the engine, without uv's own."""
        return tuple(file for file in self.files if file.path.startswith("wheels/"))


def digest(path: Path) -> str:
    """sha256 of a file, in hex."""
    total = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            total.update(chunk)
    return total.hexdigest()


def describe(root: Path) -> tuple[BundledFile, ...]:
    """Every file below `root` except the manifest itself, in path order."""
    found = sorted(path for path in root.rglob("*") if path.is_file() and path != root / MANIFEST)
    return tuple(
        BundledFile(path=str(path.relative_to(root)), sha256=digest(path), size=path.stat().st_size) for path in found
    )


def read(root: Path) -> Manifest:
    """The manifest of the bundle at `root`.

    Raises:
        BundleError: no manifest there, or one that this version cannot read.
    """
    path = root / MANIFEST
    if not path.is_file():
        raise BundleError(
            f"{root} holds no {MANIFEST}: it is not a bundle (pieces must first be joined: bundle --join)"
        )
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from None


def parse(text: str | bytes, name: str) -> Manifest:
    """The manifest that `text` holds; `name` says where it came from.

    Raises:
        BundleError: it is none, or one that this version cannot read.
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        words = f"{where}: {first['msg']}" if where else first["msg"]
        raise BundleError(f"{name} is no manifest that qwenlab {__version__} can read ({words})") from None


def verify(root: Path) -> Manifest:
    """Check that every file is there, whole and unaltered, and that no other file is.

    Raises:
        BundleError: naming every file that is missing, altered or unknown.
    """
    manifest = read(root)
    wrong = []
    for file in manifest.files:
        path = root / file.path
        if not path.is_file():
            wrong.append(f"{file.path}: missing")
        elif path.stat().st_size != file.size:
            wrong.append(f"{file.path}: {path.stat().st_size} bytes, {file.size} expected")
        elif digest(path) != file.sha256:
            wrong.append(f"{file.path}: digest differs")
    known = {file.path for file in manifest.files} | {MANIFEST}
    wrong += [
        f"{path.relative_to(root)}: not in the manifest"
        for path in sorted(root.rglob("*"))
        if path.is_file() and str(path.relative_to(root)) not in known
    ]
    if wrong:
        raise BundleError(f"the bundle at {root} is damaged; copy it again:\n  " + "\n  ".join(wrong))
    return manifest

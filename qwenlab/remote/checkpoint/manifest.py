"""The manifest: written last, once every file is verified. A directory without one is not a checkpoint.

While files arrive, a journal notes the verified ones, so that a fetch that was stopped does not read them again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from qwenlab.remote.checkpoint.files import FileEntry, digest_file, inside, sync_directory

NAME = "manifest.json"
JOURNAL = ".verified.jsonl"
SCHEMA = 1


@dataclass(frozen=True)
class Manifest:
    """What a whole checkpoint consists of.

    Attributes:
        files: every file with size and SHA-256.
        source: where they came from.
        details: of a prepared checkpoint: inputs, tool version and error bounds per tensor.
    """

    repo: str
    revision: str
    files: tuple[FileEntry, ...]
    source: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def to_dict(self) -> dict[str, Any]:
        """As it is written."""
        files = [{key: value for key, value in asdict(entry).items() if value is not None} for entry in self.files]
        return {
            "schema": SCHEMA,
            "repo": self.repo,
            "revision": self.revision,
            "source": self.source,
            **({"details": self.details} if self.details else {}),
            "files": files,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Manifest:
        """Read; ValueError for another schema, KeyError for an odd document."""
        if data["schema"] != SCHEMA:
            raise ValueError(f"manifest of schema {data['schema']}, this program knows {SCHEMA}")
        files = tuple(FileEntry.from_dict(entry) for entry in data["files"])
        return cls(data["repo"], data["revision"], files, data["source"], data.get("details", {}))


def read(directory: Path) -> Manifest | None:
    """The manifest of a directory; None when it has none that can be read."""
    try:
        return Manifest.from_dict(json.loads((directory / NAME).read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(directory: Path, manifest: Manifest) -> None:
    """Make the directory count as whole: content first, then the name, each synced."""
    fresh = directory / f"{NAME}.new"
    with fresh.open("w") as handle:
        json.dump(manifest.to_dict(), handle, indent=1)
        handle.write("\n")
        handle.flush()
        os.fsync(handle.fileno())
    fresh.rename(directory / NAME)
    sync_directory(directory)
    with suppress(FileNotFoundError):
        (directory / JOURNAL).unlink()


def withdraw(directory: Path) -> None:
    """Make the directory count as unfinished."""
    with suppress(FileNotFoundError):
        (directory / NAME).unlink()
        sync_directory(directory)


def wrong_files(directory: Path, files: Iterable[FileEntry], *, digests: bool) -> Iterator[FileEntry]:
    """The files that are missing or differ, by size or by content."""
    for entry in files:
        path = inside(directory, entry.path)
        try:
            right = path.stat().st_size == entry.size and (not digests or entry.same_content(digest_file(path, entry)))
        except OSError:
            right = False
        if not right:
            yield entry


class Journal:
    """Files of an unfinished directory whose content was verified; trusted while size and mtime are the same."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, dict[str, Any]] = {}
        with suppress(OSError):
            for line in (directory / JOURNAL).read_text().splitlines():
                with suppress(ValueError, KeyError):  # the last line may be half written
                    note = json.loads(line)
                    self._known[note["path"]] = note

    def sha256(self, entry: FileEntry) -> str | None:
        """The file's SHA-256 when it lies there verified."""
        note = self._known.get(entry.path)
        try:
            state = inside(self._directory, entry.path).stat()
        except OSError:
            return None
        if note is None or (state.st_size, state.st_mtime_ns) != (note["size"], note["mtime_ns"]):
            return None
        same = note["sha256"] == entry.sha256 if entry.sha256 else note.get("git_blob") == entry.git_blob
        return str(note["sha256"]) if same and state.st_size == entry.size else None

    def note(self, entry: FileEntry, sha256: str) -> None:
        """Remember a verified file."""
        state = inside(self._directory, entry.path).stat()
        note = {
            "path": entry.path,
            "size": state.st_size,
            "mtime_ns": state.st_mtime_ns,
            "sha256": sha256,
            "git_blob": entry.git_blob,
        }
        self._known[entry.path] = note
        with (self._directory / JOURNAL).open("a") as handle:
            handle.write(json.dumps(note) + "\n")

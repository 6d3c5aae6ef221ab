"""Files of a checkpoint: what identifies their content, and how content is held against it."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHUNK = 4 << 20  # bytes


@dataclass(frozen=True)
class FileEntry:
    """One file of a checkpoint at one commit.

    Attributes:
        path: place below the checkpoint, with `/`.
        size: bytes.
        sha256: of the content, hex; the hub knows it for files in LFS, a manifest for all.
        git_blob: git's object id, hex; the hub's digest of files outside LFS.
    """

    path: str
    size: int
    sha256: str | None = None
    git_blob: str | None = None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FileEntry:
        """Read one entry of a manifest or a job."""
        return cls(data["path"], data["size"], data.get("sha256"), data.get("git_blob"))

    def same_content(self, digests: Digests) -> bool:
        """Whether a content of these digests is this file's; LFS's SHA-256 counts where both are known."""
        if digests.size != self.size:
            return False
        if self.sha256 is not None:
            return digests.sha256 == self.sha256
        return self.git_blob is None or digests.git_blob == self.git_blob


@dataclass(frozen=True)
class Digests:
    """Size and digests of a content that was read or written."""

    size: int
    sha256: str
    git_blob: str | None


class Hasher:
    """Digests of a content as it passes by. Git's blob id needs the size in advance; None leaves it out."""

    def __init__(self, blob_size: int | None = None) -> None:
        self._blob_size = blob_size
        self.restart()

    def restart(self) -> None:
        """Forget what has passed by."""
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._blob = None if self._blob_size is None else hashlib.sha1(f"blob {self._blob_size}\0".encode())

    @classmethod
    def of(cls, entry: FileEntry) -> Hasher:
        """A hasher that computes what the entry is compared by."""
        return cls(entry.size if entry.sha256 is None else None)

    def update(self, data: memoryview) -> None:
        """Take the next bytes."""
        self._sha256.update(data)
        if self._blob is not None:
            self._blob.update(data)
        self.size += len(data)

    def digests(self) -> Digests:
        """What has passed by so far."""
        return Digests(self.size, self._sha256.hexdigest(), self._blob.hexdigest() if self._blob else None)


def read_into(path: Path, hasher: Hasher) -> None:
    """Pass a file's whole content to a hasher."""
    buffer = memoryview(bytearray(CHUNK))
    with path.open("rb", buffering=0) as handle:
        while count := handle.readinto(buffer):
            hasher.update(buffer[:count])


def digest_file(path: Path, entry: FileEntry) -> Digests:
    """Read a file and return its digests."""
    hasher = Hasher.of(entry)
    read_into(path, hasher)
    return hasher.digests()


def sync_directory(path: Path) -> None:
    """Make names in a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def inside(root: Path, path: str) -> Path:
    """`root/path`; ValueError when the name, which comes from a server or an archive, would lead out of `root`."""
    parts = Path(path).parts
    if not parts or Path(path).is_absolute() or ".." in parts:
        raise ValueError(f"{path!r} is no file name inside a checkpoint")
    return root.joinpath(*parts)

"""A model repository as the hub stores it: commits, git blob ids, LFS digests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

LFS_PATTERNS = ("*.safetensors", "*.gguf", "*.bin", "tokenizer.json")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class RepositoryFile:
    """One file of a commit.

    Attributes:
        path: place in the repository.
        source: where its content lies on this machine.
        size: bytes.
        sha256: of the content; the LFS object id.
        oid: git blob id: of the content, or of the pointer for a file in LFS.
        lfs: whether the hub keeps it in LFS.
    """

    path: str
    source: Path
    size: int
    sha256: str
    oid: str
    lfs: bool

    @property
    def etag(self) -> str:
        """Entity tag without quotes: SHA-256 for LFS files, git blob id for the others."""
        return self.sha256 if self.lfs else self.oid

    def tree_entry(self) -> dict[str, object]:
        """Its entry in the hub's tree listing."""
        entry: dict[str, object] = {"type": "file", "oid": self.oid, "size": self.size, "path": self.path}
        if self.lfs:
            entry["lfs"] = {"oid": self.sha256, "size": self.size, "pointerSize": len(_pointer(self.sha256, self.size))}
        return entry

    def sibling(self, *, blobs: bool) -> dict[str, object]:
        """Its entry under `siblings` of the hub's model info."""
        if not blobs:
            return {"rfilename": self.path}
        entry = {"rfilename": self.path, "size": self.size, "blobId": self.oid}
        if self.lfs:
            lfs = {"sha256": self.sha256, "size": self.size, "pointerSize": len(_pointer(self.sha256, self.size))}
            return {**entry, "lfs": lfs}
        return entry


@dataclass
class Repository:
    """A repository: its commits by id, and its branches.

    Attributes:
        name: `owner/name`.
        gated: only for tokens of people whose access was granted.
        private: invisible without a token.
    """

    name: str
    gated: bool = False
    private: bool = False
    commits: dict[str, dict[str, RepositoryFile]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, directory: Path, branch: str = "main", patterns: Sequence[str] = LFS_PATTERNS) -> str:
        """Commit all files below `directory` to `branch`; returns the commit id (equal content, equal id)."""
        paths = sorted(path for path in directory.rglob("*") if path.is_file())
        files = [read_file(path, path.relative_to(directory).as_posix(), patterns) for path in paths]
        listing = "".join(f"{entry.oid} {entry.path}\n" for entry in files)
        commit = hashlib.sha1(f"{self.name}\n{listing}".encode()).hexdigest()
        self.commits[commit] = {entry.path: entry for entry in files}
        self.branches[branch] = commit
        return commit

    def resolve(self, revision: str) -> str | None:
        """Commit id of a branch, a commit id or the beginning of one; None when there is no such revision."""
        if revision in self.branches:
            return self.branches[revision]
        found = [commit for commit in self.commits if commit.startswith(revision) and len(revision) >= 7]
        return found[0] if len(found) == 1 else None


def read_file(source: Path, path: str, patterns: Sequence[str]) -> RepositoryFile:
    """Digest a file as the hub does."""
    size = source.stat().st_size
    sha256, blob = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode())
    with source.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            sha256.update(chunk)
            blob.update(chunk)
    digest = sha256.hexdigest()
    lfs = any(fnmatch(path, pattern) for pattern in patterns)
    if lfs:
        pointer = _pointer(digest, size)
        blob = hashlib.sha1(f"blob {len(pointer)}\0".encode() + pointer)
    return RepositoryFile(path, source, size, digest, blob.hexdigest(), lfs)


def _pointer(sha256: str, size: int) -> bytes:
    # The text that git stores in place of an LFS object (git-lfs docs/spec.md).
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()

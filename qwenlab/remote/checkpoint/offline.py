"""Checkpoints that come on a disk: a directory or an archive, in the layouts that people have them in."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from qwenlab.remote.checkpoint import manifest
from qwenlab.remote.checkpoint.files import CHUNK, Digests, FileEntry, Hasher, digest_file
from qwenlab.remote.checkpoint.listing import needed
from qwenlab.remote.checkpoint.words import DigestError, FetchError


def layouts(repo: str, revision: str) -> tuple[str, ...]:
    """Places below the given one where a checkpoint may lie, most exact first."""
    owner, name = repo.split("/")
    return (
        f"{repo}/{revision}",  # as qwenlab keeps them
        f"models--{owner}--{name}/snapshots/{revision}",  # the hub's cache
        repo,
        f"{owner}--{name}",
        name,
        "",
    )


def find_directory(place: Path, repo: str, revision: str) -> Path:
    """The directory with config.json. Raises FetchError when there is none."""
    tried = [place / layout for layout in layouts(repo, revision)]
    for candidate in tried:
        if (candidate / "config.json").is_file():
            return candidate
    raise FetchError(
        f"{place} (qwen_model_path) holds no {repo}: a config.json was looked for in "
        + ", ".join(str(path) for path in tried[:-1])
        + f" and {place} itself."
    )


def entries_of(source: Path, repo: str, revision: str) -> tuple[tuple[FileEntry, ...], str]:
    """The files of a directory with what is known of their digests, and how it is known.

    A manifest of ours names all digests; the hub's client leaves an etag for each file it fetched
    (`.cache/huggingface/download/*.metadata`, second line). Without either, what lies there is taken as it is.
    """
    known = manifest.read(source)
    if known is not None:
        if known.revision != revision and len(revision) == 40:
            raise FetchError(f"{source} holds commit {known.revision}, not {revision}.")
        return known.files, "verified against the manifest that came along"
    found = []
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_file() and not name.startswith(".cache/"):
            etag = _etag(source, name)
            sha256 = etag if etag and len(etag) == 64 else None
            git_blob = etag if etag and len(etag) == 40 else None
            found.append(FileEntry(name, path.stat().st_size, sha256, git_blob))
    return needed(found), "digests as found on the disk"


def _etag(source: Path, name: str) -> str | None:
    with suppress(OSError, IndexError):
        lines = (source / ".cache/huggingface/download" / f"{name}.metadata").read_text().splitlines()
        return lines[1].strip()
    return None


def copy(source: Path, target: Path, entry: FileEntry, count: Callable[[int], None]) -> Digests:
    """Copy one file, or link it where both are on one file system and the service user owns it; digested on the way.

    Raises:
        DigestError: the content is not the one that is known.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        target.unlink()
    hasher = Hasher.of(entry)
    fresh = target.with_name(f"{target.name}.incomplete")
    with source.open("rb", buffering=0) as reader, fresh.open("wb", buffering=0) as writer:
        buffer = memoryview(bytearray(CHUNK))
        while received := reader.readinto(buffer):
            writer.write(buffer[:received])
            hasher.update(buffer[:received])
            count(received)
        os.fsync(writer.fileno())
    digests = hasher.digests()
    if not entry.same_content(digests):
        fresh.unlink()
        raise DigestError(f"{source} is damaged: its digest is not the one that it was stored with; copy it anew.")
    fresh.replace(target)
    return digests


def unpack(archive: Path, into: Path) -> Path:
    """Unpack a tar archive (plain, gz, bz2, xz) into an empty directory; names that lead out of it are refused."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(into, filter="data")
    except (tarfile.TarError, EOFError) as error:
        raise FetchError(f"{archive} (qwen_model_path) is no whole tar archive: {error}.") from error
    return into


def twins(models: Path, entry: FileEntry, own: Path) -> Iterator[Path]:
    """Files of whole checkpoints on this host that should have the same content: stored once, by hard links."""
    for path in models.glob(f"*/*/*/{manifest.NAME}"):
        if path.parent == own or (other := manifest.read(path.parent)) is None:
            continue
        for file in other.files:
            same = file.sha256 == entry.sha256 if entry.sha256 else file.git_blob == entry.git_blob
            if same and file.size == entry.size and entry.size and (entry.sha256 or entry.git_blob):
                yield path.parent / file.path


def link_twin(models: Path, directory: Path, entry: FileEntry) -> Digests | None:
    """Link a file from another checkpoint after reading it: a damaged one must not spread. None when there is none."""
    for twin in twins(models, entry, directory):
        with suppress(OSError):
            digests = digest_file(twin, entry)
            if entry.same_content(digests):
                target = directory / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                fresh = target.with_name(f"{target.name}.linked")
                with suppress(FileNotFoundError):
                    fresh.unlink()
                os.link(twin, fresh)
                fresh.replace(target)
                return digests
    return None

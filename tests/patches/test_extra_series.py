"""Patch series of a host's owner: read by their digest, refused in words."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from qwenlab.patches.extra import ExtraSeriesError, read_series
from qwenlab.settings.patches import ExtraSeries
from tests.patches.test_checking import EDIT


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    (folder / "kv").mkdir(parents=True)
    (folder / "series").write_text("# theirs\nkv/one.patch\n")
    (folder / "kv/one.patch").write_text(EDIT)
    (folder / "notes.txt").write_text("not part of it")
    return folder


def folder_sha(folder: Path) -> str:
    """As the documentation says to compute it."""
    names = ("series", "kv/one.patch")
    lines = "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def test_another_series_is_read_from_a_folder_with_its_digest(theirs: Path) -> None:
    found = read_series(ExtraSeries(source=str(theirs), sha256=folder_sha(theirs)))
    assert [(patch.name, patch.diff) for patch in found] == [("theirs/kv/one.patch", EDIT)]
    (theirs / "notes.txt").write_text("may change")
    assert read_series(ExtraSeries(source=str(theirs), sha256=folder_sha(theirs))) == found


def test_another_series_is_read_from_an_archive_with_its_digest(theirs: Path, tmp_path: Path) -> None:
    path = tmp_path / "kv.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(theirs, "kv-1.0")
    found = read_series(ExtraSeries(source=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest()))
    assert [patch.diff for patch in found] == [EDIT]


def wrong_digest(folder: Path) -> ExtraSeries:
    return ExtraSeries(source=str(folder), sha256="0" * 64)


def no_order(folder: Path) -> ExtraSeries:
    return ExtraSeries(source=str(folder), sha256=folder_sha(folder), order="list")


def missing_diff(folder: Path) -> ExtraSeries:
    sha = folder_sha(folder)
    (folder / "kv/one.patch").unlink()
    return ExtraSeries(source=str(folder), sha256=sha)


def broken_diff(folder: Path) -> ExtraSeries:
    (folder / "kv/one.patch").write_text("no diff\n")
    return ExtraSeries(source=str(folder), sha256=folder_sha(folder))


def outside(folder: Path) -> ExtraSeries:
    (folder / "kv/one.patch").write_text(EDIT.replace("vllm/", "vllm/../torch/"))
    return ExtraSeries(source=str(folder), sha256=folder_sha(folder))


def no_archive(folder: Path) -> ExtraSeries:
    path = folder / "notes.txt"
    return ExtraSeries(source=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def nowhere(folder: Path) -> ExtraSeries:
    return ExtraSeries(source=str(folder / "absent.zip"), sha256="0" * 64)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (wrong_digest, "SHA-256 of order file and diffs is"),
        (no_order, "has no order file 'list'"),
        (missing_diff, "lists kv/one.patch, which is not there"),
        (broken_diff, "theirs/kv/one.patch: no hunks"),
        (outside, "does not lie below vllm/"),
        (no_archive, "neither a tar nor a zip archive"),
        (nowhere, "No such file"),
    ],
)
def test_another_series_is_refused_in_words(make: Callable[[Path], ExtraSeries], words: str, theirs: Path) -> None:
    with pytest.raises(ExtraSeriesError) as refused:
        read_series(make(theirs))
    assert words in str(refused.value)


def test_nothing_is_fetched_without_its_digest() -> None:
    with pytest.raises(ValueError, match="sha256"):
        ExtraSeries.model_validate({"source": "https://example.org/kv.tar.gz"})


def test_an_archive_with_another_digest_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "kv.tar"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w"):
        pass
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ExtraSeriesError, match="SHA-256 is"):
        read_series(ExtraSeries(source=str(path), sha256="0" * 64))

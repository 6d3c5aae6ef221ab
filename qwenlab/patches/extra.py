"""Other people's series: `qwen_extra_patches`, applied after ours with the same rules. Nothing without its digest."""

from __future__ import annotations

import io
import posixpath
import tarfile
import urllib.request
import zipfile
from pathlib import Path

from qwenlab.patches.applier import PatchRefused, digest, parse
from qwenlab.patches.job import ExtraPatch
from qwenlab.settings.patches import ExtraSeries

LARGEST_ARCHIVE = 64 * 1024 * 1024


class ExtraSeriesError(ValueError):
    """A series of `qwen_extra_patches` cannot be used; the text names it and says why."""


def read_series(series: ExtraSeries) -> tuple[ExtraPatch, ...]:
    """The diffs of one entry of `qwen_extra_patches`, in the order of its order file.

    A folder's digest is that of `folder_digest`; an archive's (.tar, .tar.gz, .tar.xz, .zip) that of the file.

    Raises:
        ExtraSeriesError: not found, wrong digest, no order file, a listed diff is missing or does not parse.
    """
    files = _folder(series) if Path(series.source).is_dir() else _archive(series)
    names = _order(files, series)
    if Path(series.source).is_dir() and (found := folder_digest(files, series.order)) != series.sha256:
        raise ExtraSeriesError(f"{series.source}: SHA-256 of order file and diffs is {found}, not {series.sha256}")
    label = posixpath.basename(series.source.rstrip("/"))
    patches = tuple(ExtraPatch(f"{label}/{name}", files[name].decode()) for name in names)
    for patch in patches:
        try:
            parse(patch.diff, patch.name)
        except PatchRefused as refused:
            raise ExtraSeriesError(str(refused)) from None
    return patches


def folder_digest(files: dict[str, bytes], order: str) -> str:
    """SHA-256 over lines of "<SHA-256 of the file>  <name>": the order file first, then the diffs in its order."""
    names = [order, *_listed(files[order].decode())]
    return digest("".join(f"{digest(files[name])}  {name}\n" for name in names).encode())


def _listed(order: str) -> list[str]:
    lines = (line.partition("#")[0].strip() for line in order.splitlines())
    return [line for line in lines if line]


def _order(files: dict[str, bytes], series: ExtraSeries) -> list[str]:
    if series.order not in files:
        raise ExtraSeriesError(f"{series.source} has no order file {series.order!r}; name it with `order`")
    names = _listed(files[series.order].decode())
    missing = [name for name in names if name not in files]
    if missing or not names:
        what = f"lists {missing[0]}, which is not there" if missing else "lists no diff"
        raise ExtraSeriesError(f"{series.source}: {series.order} {what}")
    return names


def _folder(series: ExtraSeries) -> dict[str, bytes]:
    root = Path(series.source)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _archive(series: ExtraSeries) -> dict[str, bytes]:
    data = _fetch(series.source)
    found = digest(data)
    if found != series.sha256:
        raise ExtraSeriesError(f"{series.source}: SHA-256 is {found}, not {series.sha256}")
    try:
        files = _unzipped(data) if zipfile.is_zipfile(io.BytesIO(data)) else _untarred(data)
    except (tarfile.TarError, zipfile.BadZipFile) as error:
        raise ExtraSeriesError(f"{series.source}: neither a tar nor a zip archive ({error})") from None
    return _without_common_folder(files, series.order)


def _unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def _untarred(data: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() else None
            if handle is not None:
                files[posixpath.normpath(member.name)] = handle.read()
    return files


def _without_common_folder(files: dict[str, bytes], order: str) -> dict[str, bytes]:
    tops = {name.partition("/")[0] for name in files}
    if order in files or len(tops) != 1:
        return files
    top = tops.pop() + "/"
    return {name.removeprefix(top): data for name, data in files.items()}


def _fetch(source: str) -> bytes:
    if "://" not in source:
        try:
            return Path(source).read_bytes()
        except OSError as error:
            raise ExtraSeriesError(f"{source}: {error.strerror}") from None
    try:
        with urllib.request.urlopen(source, timeout=60) as answer:
            data: bytes = answer.read(LARGEST_ARCHIVE + 1)
    except OSError as error:
        raise ExtraSeriesError(f"{source}: {error}") from None
    if len(data) > LARGEST_ARCHIVE:
        raise ExtraSeriesError(f"{source}: larger than {LARGEST_ARCHIVE // 2**20} MiB, which no patch series is")
    return data

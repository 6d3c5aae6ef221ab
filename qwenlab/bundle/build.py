"""Make a bundle: fetch the wheels of a lock that the target lacks, add uv, patches and what was asked for."""

from __future__ import annotations

import csv
import hashlib
import io
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from qwenlab import __version__
from qwenlab.bundle.manifest import MANIFEST, BundleError, Manifest, describe
from qwenlab.bundle.selection import Pin, Selection
from qwenlab.engine.pins import UvPin

OLDEST_GLIBC_MINOR = 5


@dataclass(frozen=True)
class Target:
    """The machine that the wheels are for. `glibc` is the minor of its glibc 2.x (Ubuntu 22.04: 35, 24.04: 39)."""

    python: str
    glibc: int = 35
    machine: str = "x86_64"

    @property
    def platform(self) -> str:
        """The newest wheel platform that the target takes."""
        return f"manylinux_2_{self.glibc}_{self.machine}"

    def markers(self) -> dict[str, str]:
        """PEP 508 marker variables of the target."""
        return {
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "platform_machine": self.machine,
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "sys_platform": "linux",
            "os_name": "posix",
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
            "implementation_version": f"{self.python}.0",
            "extra": "",
        }

    def pip_platforms(self) -> list[str]:
        """Every platform tag that the target takes, newest first (pip matches these to the letter)."""
        numbered = [f"manylinux_2_{minor}_{self.machine}" for minor in range(self.glibc, OLDEST_GLIBC_MINOR - 1, -1)]
        return [*numbered, *(f"manylinux{year}_{self.machine}" for year in ("2014", "2010", "1")), "any"]


@dataclass(frozen=True)
class Contents:
    """What a bundle holds, and for whom.

    Attributes:
        engine, vllm: the release that it brings.
        target: the machine.
        lock: the requirements that the wheels were chosen from.
        chosen: the wheels.
        extras: name below the bundle -> directory to copy there (`models/...`, `kernels`, `debs`, `patches`).
    """

    engine: str
    vllm: str
    target: Target
    lock: str
    chosen: Selection
    extras: Mapping[str, Path]


def fetch_wheels(
    pins: Sequence[Pin], target: Target, out: Path, index_options: Sequence[str], say: Callable[[str], None]
) -> None:
    """Download one wheel per pin into `out` (pip: no dependencies, wheels only, the lock's hashes demanded).

    Args:
        index_options: `--index-url`, `--extra-index-url`, `--find-links` as pip takes them.
        say: receives progress lines.

    Raises:
        BundleError: the index has no wheel for a pin on this target, or another one than the lock names; pip's words
            are in the text.
    """
    out.mkdir(parents=True, exist_ok=True)
    wanted = out.with_name("wanted.txt")
    wanted.write_text("".join(f"{pin}{''.join(f' --hash={value}' for value in pin.hashes)}\n" for pin in pins))
    platforms = [word for name in target.pip_platforms() for word in ("--platform", name)]
    command = ["uv", "run", "--quiet", "--no-project", "--with", "pip", "python", "-m", "pip", "download"]
    options = ["--progress-bar", "off", "--no-deps", "--only-binary=:all:", "--implementation", "cp"]
    files = ["--dest", str(out), "--requirement", str(wanted)]
    run = subprocess.Popen(
        [*command, *options, "--python-version", target.python, *platforms, *index_options, *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert run.stdout is not None
    said, done, retried = [], 0, False
    for line in run.stdout:
        said.append(line.rstrip())
        # one of these as each is had, from an index or a folder; "Saved" comes of all of them at pip's end
        if line.startswith(("Collecting ", "Processing ")):
            done += 1
            say(f"[{done}/{len(pins)}] {Path(line.split()[1]).name}")
        elif line.startswith("WARNING: Retrying") and not retried:
            retried = True
            say(f"an index does not answer, and pip tries it again for each package: {line.rstrip()}")
    wanted.unlink()
    if run.wait() != 0:
        first = next((number for number, line in enumerate(said) if line.startswith("ERROR")), len(said) - 5)
        errors = said[max(first, 0) :]
        raise BundleError(f"pip download for Python {target.python} on {target.platform} failed:\n" + "\n".join(errors))


def trim(wheel: Path, patterns: Collection[str]) -> tuple[str, ...]:
    """Rewrite a wheel without the members that match a pattern, and without compression.

    RECORD is kept in step. The pieces are compressed as a whole, which packs plain members far better.

    Returns:
        the names that were dropped.
    """
    plain = wheel.with_suffix(".plain")
    dropped = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(plain, "w", zipfile.ZIP_STORED) as sink:
        record = next(name for name in source.namelist() if name.endswith(".dist-info/RECORD"))
        for member in source.infolist():
            if any(fnmatch(member.filename, pattern) for pattern in patterns):
                dropped.append(member.filename)
            elif member.filename != record:
                sink.writestr(_stored(member), source.read(member))
        rows = [row for row in csv.reader(io.StringIO(source.read(record).decode())) if row[0] not in dropped]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        sink.writestr(record, text.getvalue())
    plain.replace(wheel)
    return tuple(dropped)


def _stored(member: zipfile.ZipInfo) -> zipfile.ZipInfo:
    plain = zipfile.ZipInfo(member.filename, member.date_time)
    plain.external_attr = member.external_attr
    return plain


def fetch_uv(uv: UvPin, target: Target, out: Path, index_options: Sequence[str], say: Callable[[str], None]) -> None:
    """Download the pinned uv's wheel into `out`.

    Raises:
        BundleError: none is pinned for the target's machine, or it could not be had.
    """
    if target.machine not in uv.wheels:
        raise BundleError(f"no uv is pinned for {target.machine}; there is {', '.join(uv.wheels)}")
    wheel = uv.wheels[target.machine]
    fetch_wheels([Pin("uv", uv.version, (f"sha256:{wheel.sha256}",))], target, out, index_options, say)


def finish(root: Path, contents: Contents, trimmed: Collection[str] = ()) -> Manifest:
    """Add what was asked for beside the wheels and write requirements and manifest.

    Args:
        root: the bundle, in which the wheels lie already.
        contents: what it is to hold.
        trimmed: members that were dropped from wheels.

    Raises:
        BundleError: an extra is no directory.
    """
    for name, source in contents.extras.items():
        if not source.is_dir():
            raise BundleError(f"{source} is not a directory")
        shutil.copytree(source, root / name)
    wheels = {path.name: path for path in sorted((root / "wheels").glob("*.whl"))}
    lines = [f"./wheels/{name}" for name in wheels]
    (root / "requirements.txt").write_text("\n".join(lines) + "\n")
    manifest = Manifest(
        qwenlab=__version__,
        engine=contents.engine,
        vllm=contents.vllm,
        python=contents.target.python,
        platform=contents.target.platform,
        lock_sha256=hashlib.sha256(contents.lock.encode()).hexdigest(),
        files=describe(root),
        left_out=contents.chosen.left_out,
        trimmed=tuple(sorted(trimmed)),
    )
    (root / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n")
    return manifest

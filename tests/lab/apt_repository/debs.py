"""Debian packages from data, built with the real dpkg-deb."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.cache import build_once, cache_directory


@dataclass(frozen=True)
class Entry:
    """One file of a package; `link` makes it a symbolic link."""

    content: bytes = b""
    mode: int = 0o644
    link: str | None = None


def text(content: str, mode: int = 0o644) -> Entry:
    """A text file."""
    return Entry(content.encode(), mode)


def program(content: str) -> Entry:
    """An executable script."""
    return text(content, 0o755)


def link(target: str) -> Entry:
    """A symbolic link."""
    return Entry(link=target)


@dataclass(frozen=True)
class Deb:
    """A binary package. `relations`: control fields (Depends, Conflicts ...); `scripts`: maintainer scripts."""

    name: str
    version: str
    summary: str
    architecture: str = "amd64"
    section: str = "non-free/libs"
    source: str | None = None
    relations: dict[str, str] = field(default_factory=dict)
    files: dict[str, Entry] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)
    conffiles: tuple[str, ...] = ()

    @property
    def file_name(self) -> str:
        """As in a repository: name_version_architecture.deb, without the epoch."""
        return f"{self.name}_{self.version.split(':')[-1]}_{self.architecture}.deb"

    def control(self) -> str:
        """The control file."""
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "cudatools <cudatools@nvidia.com>",
            "Section": self.section,
            "Priority": "optional",
            **({"Source": self.source} if self.source else {}),
            **self.relations,
            "Description": self.summary,
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items())


def build(package: Deb, folder: Path) -> Path:
    """Write the .deb into `folder`. Raises CalledProcessError when dpkg-deb finds it malformed.

    What dpkg-deb made once is kept under a hash of the package's content and copied from there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / package.file_name
    digest = hashlib.sha256(repr(package).encode()).hexdigest()
    made = build_once(cache_directory() / "debs" / digest[:24], lambda place: _make(package, place / target.name))
    shutil.copyfile(made / target.name, target)
    return target


def _make(package: Deb, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        root.chmod(0o755)
        for name, entry in package.files.items():
            place = root / name.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if entry.link is not None:
                place.symlink_to(entry.link)
                continue
            place.write_bytes(entry.content)
            place.chmod(entry.mode)
        control = root / "DEBIAN"
        control.mkdir()
        (control / "control").write_text(package.control())
        if package.conffiles:
            (control / "conffiles").write_text("".join(f"{name}\n" for name in package.conffiles))
        for name, content in package.scripts.items():
            (control / name).write_text(content)
            (control / name).chmod(0o755)
        # xz is NVIDIA's choice; gzip at its fastest keeps a build of dozens of packages within seconds
        command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(root), str(target)]
        subprocess.run(command, check=True, capture_output=True, text=True)

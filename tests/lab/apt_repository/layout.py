"""The repository on disk: `compute/cuda/repos/<distribution>/x86_64/`, flat, indexed by apt-ftparchive and signed."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from enum import StrEnum
from pathlib import Path

from tests.lab.apt_repository import driver_packages, keys, toolkit_packages
from tests.lab.apt_repository.debs import Deb, build, text
from tests.lab.apt_repository.debs import Entry as File
from tests.lab.apt_repository.driver_packages import DEBIAN, UBUNTU, VERSIONS, Family

REPOS = "compute/cuda/repos"
ARCHITECTURE = "x86_64"
# distribution directory -> naming of its packages, name of the key file in it
DISTRIBUTIONS: dict[str, tuple[Family, str]] = {
    "debian12": (DEBIAN, "3bf863cc.pub"),
    "debian13": (DEBIAN, "8793F200.pub"),
    "ubuntu2204": (UBUNTU, "3bf863cc.pub"),
    "ubuntu2404": (UBUNTU, "3bf863cc.pub"),
    "ubuntu2604": (UBUNTU, "60DF8A40.pub"),
}
LABEL = "NVIDIA CUDA"
KEYRING_PATH = "usr/share/keyrings/cuda-archive-keyring.gpg"
PREFERENCES = """\
Package: nsight-compute
Pin: origin *ubuntu.com*
Pin-Priority: -1

Package: *
Pin: release l=NVIDIA CUDA
Pin-Priority: 600
"""


class Variant(StrEnum):
    """Which repository: one that is right, or one that is broken in one way."""

    GOOD = "good"
    EXPIRED_KEY = "expired-key"  # signed with a key that has expired
    SHA1_KEY = "sha1-key"  # the key is bound by a SHA-1 self-signature; sqv (Debian 13) refuses it
    BROKEN_MODULE = "broken-module"  # the newest 580 module does not compile on this kernel
    LAGGING_FABRIC_MANAGER = "lagging-fabric-manager"  # its newest version is older than the driver's
    UNSIGNED = "unsigned"  # no InRelease and no Release.gpg


def packages_of(family: Family, variant: Variant) -> list[Deb]:
    """Every package of a distribution's directory except the keyring."""
    result: list[Deb] = [*driver_packages.pinning_packages(), *toolkit_packages.packages()]
    for version in VERSIONS:
        lagging = variant is Variant.LAGGING_FABRIC_MANAGER and version == "580.126.09"
        broken = variant is Variant.BROKEN_MODULE and version == "580.126.09"
        fabric = "580.95.05" if lagging else version
        result += driver_packages.packages(family, version, fabric, broken)
    return list({package.file_name: package for package in result}.values())


def write_packages(pool: Path, family: Family, variant: Variant) -> None:
    """Build the packages once; directories of one family share them by hard links."""
    for package in packages_of(family, variant):
        build(package, pool)


def write_directory(
    folder: Path, pool: Path, distribution: str, key: keys.SigningKey, base_url: str, sign: bool
) -> None:
    """Lay out one distribution's directory: packages, keyring package, key file, indexes, signatures."""
    folder.mkdir(parents=True)
    for package in pool.iterdir():
        (folder / package.name).hardlink_to(package)
    build(keyring_package(distribution, key, base_url), folder)
    (folder / DISTRIBUTIONS[distribution][1]).write_bytes(key.armoured)
    index(folder, key if sign else None, LABEL)


def keyring_package(distribution: str, key: keys.SigningKey, base_url: str) -> Deb:
    """cuda-keyring_1.1-1_all.deb: the key, the source line and the pin."""
    line = f"deb [signed-by=/{KEYRING_PATH}] {base_url}/{distribution}/{ARCHITECTURE}/ /\n"
    source = f"etc/apt/sources.list.d/cuda-{distribution}-{ARCHITECTURE}.list"
    preferences = "etc/apt/preferences.d/cuda-repository-pin-600"
    return Deb(
        name="cuda-keyring",
        version="1.1-1",
        architecture="all",
        summary="GPG keyring for the CUDA repository",
        files={KEYRING_PATH: File(key.public), source: text(line), preferences: text(PREFERENCES)},
        conffiles=(f"/{source}", f"/{preferences}"),
    )


def index(folder: Path, key: keys.SigningKey | None, label: str) -> None:
    """Packages, Packages.gz and Release by apt-ftparchive; InRelease and Release.gpg by GnuPG."""
    if shutil.which("apt-ftparchive") is None:
        raise RuntimeError("apt-ftparchive is missing: apt-get install apt-utils")
    listing = _ftparchive(folder, "packages", ".")
    (folder / "Packages").write_bytes(listing)
    (folder / "Packages.gz").write_bytes(gzip.compress(listing, mtime=0))
    options = {"Origin": "NVIDIA", "Label": label, "Architectures": "amd64"}
    flags = [part for name, value in options.items() for part in ("-o", f"APT::FTPArchive::Release::{name}={value}")]
    release = _ftparchive(folder, *flags, "release", ".")
    (folder / "Release").write_bytes(release)
    if key:
        key.sign(folder / "Release")


def _ftparchive(folder: Path, *arguments: str) -> bytes:
    done = subprocess.run(["apt-ftparchive", *arguments], cwd=folder, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"apt-ftparchive {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return done.stdout

"""Root file systems of lab hosts: a debootstrap base for each release, and layers of packages on top.

Both are built once and kept in the cache under a hash of their recipe. Hosts use them as the read-only part of
an overlay, so a changed recipe never touches what a running host stands on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.lab import surroundings
from tests.lab.cache import build_once, cache_directory
from tests.lab.shell import LabError, run

RECIPE_VERSION = 1

BASE_PACKAGES = (
    "ca-certificates",
    "dbus",
    "iproute2",
    "kmod",
    "openssh-server",
    "pciutils",
    "procps",
    "sudo",
    "systemd",
    "systemd-sysv",
)

# An older release that offers a package which a newer one no longer has, at a priority below the release's own.
OLDER_SOURCES = {"trixie": "bookworm"}
RELEASES = ("trixie", "bookworm")

# Timers that take apt's lock at a random moment, and consoles that nobody sits at.
MASKED_UNITS = ("apt-daily.timer", "apt-daily-upgrade.timer", "console-getty.service", "getty.target")

SSHD_CONFIG = "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUseDNS no\n"


def lower_directories(release: str, packages: Sequence[str]) -> list[Path]:
    """Read-only directories of the overlay of a host with `packages`, topmost first; builds those that are missing."""
    if release not in RELEASES:
        raise LabError(f"the lab has no Debian release {release!r}; it has {', '.join(RELEASES)}")
    recipe = _base_recipe(release)
    base = build_once(_place(release, recipe), lambda directory: _build_base(directory, release))
    if not packages:
        return [base]
    wanted = sorted(set(packages))
    layer_recipe = {**recipe, "layer": wanted}
    layer = build_once(_place(release, layer_recipe), lambda directory: _build_layer(directory, base, release, wanted))
    return [layer / "files", base]


def _place(release: str, recipe: dict[str, object]) -> Path:
    digest = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    return cache_directory() / "images" / f"{release}-{digest}"


def _base_recipe(release: str) -> dict[str, object]:
    certificates = [path.read_text() for path in surroundings.extra_ca_certificates()]
    return {
        "version": RECIPE_VERSION,
        "release": release,
        "packages": BASE_PACKAGES,
        "mirrors": surroundings.debian_mirrors(),
        "apt": surroundings.apt_options(),
        "certificates": certificates,
        "masked": MASKED_UNITS,
        "sshd": SSHD_CONFIG,
    }


def _build_base(directory: Path, release: str) -> None:
    mirror, _ = surroundings.debian_mirrors()
    include = f"--include={','.join(BASE_PACKAGES)}"
    run(["debootstrap", "--variant=minbase", include, release, str(directory), mirror], timeout=1800)
    write_tree(
        directory,
        {
            "etc/apt/sources.list": "",
            "etc/apt/sources.list.d/debian.sources": _sources(release),
            "etc/apt/apt.conf.d/90lab": "".join(f'{k} "{v}";\n' for k, v in surroundings.apt_options().items()),
            "etc/ssh/sshd_config.d/lab.conf": SSHD_CONFIG,
            "etc/sudoers.d/admin": "admin ALL=(ALL:ALL) NOPASSWD: ALL\n",
            "etc/machine-id": "",
        },
    )
    for certificate in surroundings.extra_ca_certificates():
        shutil.copy(certificate, directory / "usr/local/share/ca-certificates" / certificate.name)
    for unit in MASKED_UNITS:
        (directory / "etc/systemd/system" / unit).symlink_to("/dev/null")
    for key in (directory / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    run(
        [
            *("chroot", str(directory), "sh", "-ec"),
            "chmod 0440 /etc/sudoers.d/admin; update-ca-certificates >/dev/null; apt-get clean;"
            "useradd --create-home --shell /bin/bash admin; useradd --create-home --shell /bin/bash guest",
        ]
    )


def _build_layer(directory: Path, base: Path, release: str, packages: Sequence[str]) -> None:
    for part in ("files", "work", "root"):
        (directory / part).mkdir()
    older = OLDER_SOURCES.get(release)
    extra: dict[str, str] = {}
    if older:
        extra = {
            "etc/apt/sources.list.d/older.sources": _sources(older),
            "etc/apt/preferences.d/older": f"Package: *\nPin: release n={older}*\nPin-Priority: 100\n",
        }
    mount = f"lowerdir={base},upperdir={directory / 'files'},workdir={directory / 'work'}"
    root = directory / "root"
    # The overlay lives in a mount namespace of its own: it goes away with this build, however that ends.
    script = """
        mount -t overlay overlay -o "$1" "$2"
        shift; root=$1; shift
        exec systemd-nspawn --quiet --directory="$root" --machine=qwenlab-lab-build-$$ --register=no --keep-unit \
            --resolv-conf=replace-host --pipe --setenv=DEBIAN_FRONTEND=noninteractive sh -ec \
            'apt-get -qq update; apt-get -qq -y --no-install-recommends install "$@"; apt-get clean' install "$@"
    """
    write_tree(directory / "files", extra)
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "layer", mount, str(root)]
    run([*command, *packages], timeout=1800)
    for path in extra:
        (directory / "files" / path).unlink()
    root.rmdir()
    shutil.rmtree(directory / "work")


def _sources(release: str) -> str:
    main, security = surroundings.debian_mirrors()
    signed = "Components: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    return (
        f"Types: deb\nURIs: {main}\nSuites: {release} {release}-updates\n{signed}\n"
        f"Types: deb\nURIs: {security}\nSuites: {release}-security\n{signed}"
    )


def write_tree(root: Path, files: dict[str, str]) -> None:
    """Write text files below `root`, with their directories."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

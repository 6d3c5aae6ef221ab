"""From a spec to a running host: its disk, what is written on it before the first boot, and systemd-nspawn."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab import cgroups, image, surroundings
from tests.lab.shell import LabError, run

if TYPE_CHECKING:
    from tests.lab.host import Host

SUPERVISE = Path(__file__).with_name("supervise.sh")
LOGINS = {"root": "root", "home/admin": "admin", "home/guest": "guest"}  # home -> user


def prepare(host: Host, names: dict[str, str]) -> None:
    """Mount the host's disk and write its identity; `names` are the lab's addresses for /etc/hosts."""
    host.directory.mkdir(parents=True)
    lowers = image.lower_directories(host.spec.release, host.spec.all_packages())
    disk = host.directory / "disk"
    disk.mkdir()
    if host.spec.disk_mib is not None:
        _small_disk(host.directory / "disk.img", disk, host.spec.disk_mib)
    upper, work = disk / "upper", disk / "work"
    for directory in (upper, work, host.root):
        directory.mkdir()
    layers = ":".join(str(lower) for lower in lowers)
    options = f"lowerdir={layers},upperdir={upper},workdir={work}"
    run(["mount", "-t", "overlay", "overlay", "-o", options, str(host.root)])
    _write_identity(host, names)


def start(host: Host) -> None:
    """Boot the prepared host; returns at once.

    The host dies with the process that starts it, unless that is told to keep it (see `keep_after_exit`).
    """
    spec = host.spec
    space = host.lab.namespace(host.index)
    command = [
        *("systemd-nspawn", "--quiet", "--boot", f"--directory={host.root}", f"--machine={space}"),
        *("--register=no", "--keep-unit", f"--network-namespace-path=/run/netns/{space}"),
        *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe"),
        *(f"--bind={source}:{place}" for place, source in spec.binds.items()),
        *(f"--bind-ro={source}:{place}" for place, source in spec.binds_ro.items()),
    ]
    groups = [str(path) for path in cgroups.create(host.group, spec.memory_mib)]
    prefix = _death_with_parent()
    with (host.directory / "console.log").open("ab") as console:
        process = subprocess.Popen(
            [*prefix, str(SUPERVISE), *groups, "--", *prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            # /tmp is then what the release makes of it: a directory of the disk, or its own tmp.mount.
            env={**os.environ, "SYSTEMD_NSPAWN_TMPFS_TMP": "0", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
        )
    while not cgroups.populated(host.group):
        if process.poll() is not None:
            raise LabError(f"{host.name} did not start:\n{host.console()}")
        time.sleep(0.01)
    threading.Thread(target=process.wait, name=f"reap {host.name}", daemon=True).start()


_keep = False


def keep_after_exit() -> None:
    """Hosts started from now on outlive this process (a kept lab)."""
    global _keep
    _keep = True


def _death_with_parent() -> list[str]:
    # The kernel sends the signal when the starting *thread* ends, so only the main thread's hosts may have it.
    if _keep or threading.current_thread() is not threading.main_thread():
        return []
    return ["setpriv", "--pdeathsig", "KILL"]


def _small_disk(image_file: Path, mount_point: Path, size_mib: int) -> None:
    with image_file.open("wb") as handle:
        handle.truncate(size_mib << 20)
    run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image_file)])
    run(["mount", "-o", "loop", str(image_file), str(mount_point)])


def _meminfo(memory_mib: int) -> str:
    """A /proc/meminfo that tells the host its limit, as lxcfs does (MemFree and MemAvailable of when it was made)."""
    text = Path("/proc/meminfo").read_text()
    limit = memory_mib << 10
    for name in ("MemTotal", "MemFree", "MemAvailable"):
        text = re.sub(rf"^({name}:\s*)(\d+)", lambda m: f"{m[1]}{min(limit, int(m[2]))}", text, flags=re.MULTILINE)
    return text


def _write_identity(host: Host, names: dict[str, str]) -> None:
    servers = surroundings.name_servers()
    environment = surroundings.proxy_environment()
    resolver = host.root / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    files = {
        "etc/hostname": f"{host.name}\n",
        "etc/hosts": "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in names.items()),
        "etc/resolv.conf": "".join(f"nameserver {server}\n" for server in servers),
        "etc/environment": "".join(f"{name}={value}\n" for name, value in environment.items()),
    }
    if host.spec.memory_mib is not None:
        files["etc/lab-meminfo"] = _meminfo(host.spec.memory_mib)
        files["etc/fstab"] = "/etc/lab-meminfo /proc/meminfo none bind 0 0\n"
    image.write_tree(host.root, files)
    _write_keys(host)


def _write_keys(host: Host) -> None:
    host_key = host.root / "etc/ssh/ssh_host_ed25519_key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", host.name, "-f", str(host_key)])
    public = host_key.with_suffix(".pub").read_text().split()
    with host.known_hosts.open("a") as known:
        known.write(f"{host.address} {public[0]} {public[1]}\n")
    login = host.key.with_suffix(".pub").read_text()
    for home, user in LOGINS.items():
        entry = _user(host.root, user)
        ssh = host.root / home / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        keys = ssh / "authorized_keys"
        keys.write_text(login)
        for path in (ssh, keys):
            os.chown(path, *entry)


def _user(root: Path, name: str) -> tuple[int, int]:
    for line in (root / "etc/passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == name:
            return int(fields[2]), int(fields[3])
    raise LabError(f"the image has no user {name}")

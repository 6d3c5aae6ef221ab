"""One lab host: a booted Debian with systemd as PID 1 that is spoken to over SSH, like a machine in a rack."""

from __future__ import annotations

import shlex
import socket
import subprocess
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.lab import boot, cgroups, network
from tests.lab.shell import LabError, run

BOOT_WITHIN = 120.0  # seconds


@dataclass(frozen=True)
class HostSpec:
    """What a host is made of.

    Attributes:
        name: host name; empty for host1, host2, ...
        release: Debian release, `trixie` or `bookworm`.
        packages: Debian packages beyond the base, installed once into a cached layer.
        python: whether the distribution's python3 is there.
        disk_mib: size of a real file system under everything the host writes; None for this machine's disk.
        memory_mib: memory limit of all its processes, also shown in /proc/meminfo; None for none.
        network: whether it reaches anything beyond the lab.
        binds: directories of this machine by their place in the host, writable.
        binds_ro: the same, read-only.
    """

    name: str = ""
    release: str = "trixie"
    packages: tuple[str, ...] = ()
    python: bool = True
    disk_mib: int | None = None
    memory_mib: int | None = None
    network: bool = True
    binds: dict[str, str] = field(default_factory=dict)
    binds_ro: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> HostSpec:
        """The same host under `name`, unless it has one."""
        return self if self.name else replace(self, name=name)

    def all_packages(self) -> tuple[str, ...]:
        """Packages of the layer on the base image."""
        return (*self.packages, "python3") if self.python else self.packages


@dataclass
class Host:
    """A host of a running lab.

    Attributes:
        spec: what it is made of.
        lab: network of its lab.
        index: place in the lab, 0 for the first.
        directory: its disk, root mount and console log on this machine.
        key: private SSH key (root, admin and guest accept it).
        known_hosts: file with its host key.
    """

    spec: HostSpec
    lab: network.LabNetwork
    index: int
    directory: Path
    key: Path
    known_hosts: Path

    @property
    def name(self) -> str:
        """Host name."""
        return self.spec.name

    @property
    def address(self) -> str:
        """IPv4 address, reachable from this machine and from the other hosts of the lab."""
        return str(self.lab.address(self.index))

    def pyinfra_data(self, user: str = "root") -> dict[str, Any]:
        """Host data with which pyinfra reaches it as `user`: `root`, `admin` (sudo without password) or `guest`."""
        data: dict[str, Any] = {
            "ssh_hostname": self.address,
            "ssh_port": 22,
            "ssh_user": user,
            "ssh_key": str(self.key),
            "ssh_known_hosts_file": str(self.known_hosts),
            "ssh_strict_host_key_checking": "yes",
        }
        return data if user == "root" else {**data, "_sudo": True}

    def ssh_command(self, user: str = "root") -> list[str]:
        """The `ssh` command line that logs in as `user`."""
        options = {
            "IdentityFile": str(self.key),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "StrictHostKeyChecking": "yes",
            "LogLevel": "ERROR",
            "ConnectTimeout": "10",
            "BatchMode": "yes",
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "/dev/null", *flags, f"{user}@{self.address}"]

    def ssh_run(
        self, command: str, *, user: str = "root", check: bool = True, stdin: str | None = None, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command over SSH. Raises LabError with its stderr when `check` and it fails."""
        return run([*self.ssh_command(user), command], check=check, stdin=stdin, timeout=timeout)

    def put(self, content: bytes, remote: str, mode: str = "0644") -> None:
        """Write a file on the host (directories are made)."""
        place = shlex.quote(remote)
        command = f"install -D -m {mode} /dev/stdin {place}"
        done = subprocess.run([*self.ssh_command(), command], input=content, capture_output=True, timeout=300)
        if done.returncode != 0:
            raise LabError(f"{remote} could not be written on {self.name}: {done.stderr.decode(errors='replace')}")

    def get(self, remote: str) -> bytes:
        """A file's content. Raises LabError when it cannot be read."""
        done = subprocess.run([*self.ssh_command(), f"cat {shlex.quote(remote)}"], capture_output=True, timeout=300)
        if done.returncode != 0:
            raise LabError(f"{remote} could not be read on {self.name}: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def journal(self, unit: str | None = None) -> str:
        """The journal of this boot, of one unit or of all."""
        chosen = f" --unit={shlex.quote(unit)}" if unit else ""
        return self.ssh_run(f"journalctl --boot --no-pager --output=short-iso{chosen}").stdout

    def console(self) -> str:
        """What systemd printed to the console since the lab began; of use when SSH does not answer."""
        return (self.directory / "console.log").read_text(errors="replace")

    def boot_id(self) -> str:
        """Changes with every boot."""
        return self.ssh_run("cat /proc/sys/kernel/random/boot_id", timeout=30).stdout.strip()

    def reboot(self) -> None:
        """Reboot in good order and wait until it is back."""
        before = self.boot_id()
        self.ssh_run("systemctl reboot", check=False, timeout=60)
        self._wait("reboot", lambda: self._answers() and self.boot_id() != before)
        self.wait_booted()

    def power_off(self) -> None:
        """Pull the plug: every process dies at once, the disk keeps what was written."""
        cgroups.remove(self.group)

    def power_on(self, *, wait: bool = True) -> None:
        """Boot from the disk as it was left."""
        if self.running():
            raise LabError(f"{self.name} is already running")
        boot.start(self)
        if wait:
            self.wait_booted()

    def running(self) -> bool:
        """Whether any of its processes lives."""
        return cgroups.populated(self.group)

    def wait_booted(self, timeout: float = BOOT_WITHIN) -> None:
        """Wait until SSH answers and systemd has finished starting. Raises LabError with the console's last lines."""
        self._wait("boot", self._answers, timeout)
        self.ssh_run("systemctl is-system-running --wait", check=False, timeout=timeout)

    def cut_network(self) -> None:
        """From now on nothing that it sends leaves the lab or reaches this machine's servers; SSH to it still works."""
        network.cut(self.lab, self.index)

    def mend_network(self) -> None:
        """Undo `cut_network`."""
        network.mend(self.lab, self.index)

    @property
    def group(self) -> str:
        """Name of its control groups."""
        return f"qwenlab-lab-{self.lab.number}-{self.index}"

    @property
    def root(self) -> Path:
        """Its root file system as mounted on this machine."""
        return self.directory / "root"

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), timeout=1):
                pass
        except OSError:
            return False
        return self.ssh_run("true", check=False, timeout=30).returncode == 0

    def _wait(self, what: str, ready: Any, timeout: float = BOOT_WITHIN) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if not self.running():
                raise LabError(f"{self.name} stopped while it should {what}:\n{self._last_words()}")
            try:
                if ready():
                    return
            except LabError:
                pass  # SSH went away between two questions: it is going down
            time.sleep(0.1)
        raise LabError(f"{self.name} did not {what} within {timeout:.0f} s:\n{self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join(self.console().splitlines()[-20:])

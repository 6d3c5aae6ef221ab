"""A lab host with simulated cards and NVIDIA's repository beside it, and the play that installs its driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import lab
from tests.lab.apt_repository import DriverStage, RepositoryServer, Variant
from tests.lab.deploying import ROOT, Run, inventory

TOOLS = ("dkms", "gcc", "make")  # from Debian, in the cached layer: the lab's repository is NVIDIA's alone
DIRECTORIES = {"trixie": "debian13", "bookworm": "debian12"}
# holds the lock as another package manager does, then writes down until when
HOLD_LOCK = """
import fcntl, os, socket, sys, time
file = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
systemd.connect(os.environ["NOTIFY_SOCKET"])
systemd.send(b"READY=1")
time.sleep(float(sys.argv[1]))
open("/root/released", "w").write(time.strftime("%Y-%m-%d %H:%M:%S"))
"""


@dataclass(frozen=True)
class Rack:
    """One host, its cards, the repository, and a folder for inventories."""

    host: lab.Host
    stage: DriverStage
    repository: RepositoryServer
    directory: Path

    def settings(self, variant: Variant = Variant.GOOD, **more: Any) -> dict[str, Any]:
        """Host data of a host with cards."""
        return {
            "qwen_driver_repository": self.repository.url(variant),
            "qwen_driver_key_fingerprint": self.repository.fingerprint(variant),
            "qwen_api_key": "lab-key-9d7c1f",
            "qwen_min_ram_gib": 1,
            "qwen_min_release_gib": 1,
            "qwen_min_model_gib": 1,
            **more,
        }

    def run(self, play: str = "plays/driver.py", variant: Variant = Variant.GOOD, **more: Any) -> Run:
        """Run a play with these settings, as user admin with sudo."""
        data = {**self.host.pyinfra_data("admin"), **self.settings(variant, **more)}
        file = inventory(self.directory, {self.host.name: data})
        pyinfra = Path(sys.executable).with_name("pyinfra")
        command = [str(pyinfra), str(file), str(ROOT / play), "-y", "--json", "-vv"]
        environment = {**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off"}
        done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, timeout=900)
        said: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
        operations: list[dict[str, Any]] = (said.get("results") or {}).get("operations", [])
        return Run(
            code=done.returncode,
            text=done.stderr,
            changed=tuple(str(one["name"]) for one in operations if one["success"]),
            unchanged=tuple(str(one["name"]) for one in operations if one["no_change"]),
            planned=(),
        )

    def say(self, command: str) -> str:
        """What a command prints on the host, whatever its exit code."""
        return str(self.host.ssh_run(f"{{ {command}; }} 2>&1", check=False, timeout=300).stdout)

    def settled(self, **more: Any) -> Run:
        """A run that succeeds and finds nothing to do (the results of one that fails list no changes either)."""
        run = self.run(**more)
        assert run.code == 0, run.text
        assert run.changed == (), run.text
        return run

    def written(self, play: str = "plays/driver.py", **more: Any) -> tuple[Run, list[str]]:
        """A run, and the files of the system that it wrote."""
        self.host.ssh_run("touch /root/before")
        run = self.run(play, **more)
        places = "/etc /boot /usr /lib/modules /var/lib/dpkg /var/lib/apt /var/cache/apt/archives /var/lib/dkms"
        return run, self.say(f"find {places} -type f -newer /root/before").split()

    def hold_lock(self, seconds: int) -> str:
        """Another process holds dpkg's lock from now on, for so long; its process id."""
        self.host.put(HOLD_LOCK.encode(), "/root/hold.py")
        unit = "systemd-run --quiet --unit=holder --collect --service-type=notify"  # returns when the lock is held
        self.host.ssh_run(f"{unit} python3 /root/hold.py {seconds}")
        return str(self.host.ssh_run("systemctl show -p MainPID --value holder").stdout.strip())


@contextmanager
def rack(directory: Path, release: str = "trixie", packages: tuple[str, ...] = ()) -> Iterator[Rack]:
    """A host without cards yet: `rack.stage.prepare(...)` puts them in."""
    with (
        lab.hosts(1, release=release, packages=(*TOOLS, *packages)) as hosts,
        RepositoryServer(str(hosts[0].lab.gateway), distributions=tuple(DIRECTORIES.values())) as repository,
    ):
        yield Rack(hosts[0], DriverStage(hosts[0], repository), repository, directory)

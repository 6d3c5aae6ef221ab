"""Hosts that fetch checkpoints and serve nothing: they borrow this machine's interpreter, so none is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import lab
from tests.checkpoint.fetching import REPO, repository
from tests.lab.deploying import ROOT, inventory
from tests.lab.servers.hub import Hub

PYTHON = Path(sys.executable)
BASE = Path(sys.base_prefix)
BORROWED = "/opt/borrowed"


@dataclass
class Rack:
    """The hosts, and a hub."""

    hosts: lab.Lab
    hub: Hub
    commit: str
    directory: Path

    def start(self, name: str, count: int = 4, **settings: Any) -> subprocess.Popen[str]:
        """A deploy of the first `count` hosts."""
        return self.play(ROOT / "tests/lab/plays/checkpoints.py", name, "-y", "--json", count=count, **settings)

    def play(self, play: Path, name: str, *options: str, count: int = 4, **settings: Any) -> subprocess.Popen[str]:
        """A play on the first `count` hosts."""
        common = {
            "qwen_engine": "cpu",
            "qwen_cpu_checkpoint": REPO,
            "qwen_cpu_revision": self.commit,
            "qwen_hub_endpoint": self.hub.endpoint,
            "qwen_model_source": "peer",
            "lab_python": f"{BORROWED}/bin/{PYTHON.name}",
            **settings,
        }
        hosts = {one.name: {**one.pyinfra_data("admin"), **common} for one in self.hosts[:count]}
        file = inventory(self.directory, hosts, name)
        command = [str(PYTHON.with_name("pyinfra")), str(file), str(play), *options]
        environment = {**os.environ, "NO_COLOR": "1", "PYINFRA_PROGRESS": "off", "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, name: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        """The same, to its end."""
        with self.start(name, **settings) as process:
            output, errors = process.communicate(timeout=600)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def verified(self) -> list[str]:
        """What each host says of its copy, every byte read."""
        place = f"/srv/qwen/models/{REPO}/{self.commit}"
        command = f"cd /usr/local/lib/qwen && python3 -B -m qwenlab.remote.checkpoint.verify digest {place}"
        return [one.ssh_run(command).stdout for one in self.hosts]


@contextmanager
def racked(count: int, directory: Path) -> Iterator[Rack]:
    """So many hosts, up, and a hub with one checkpoint made below `directory`."""
    # the environment may lie anywhere here, also below /tmp, which is a file system of its own on a host
    borrowed = {BORROWED: str(PYTHON.parents[1]), str(BASE): str(BASE)}
    # the service user must reach the interpreter through the directories above it
    with lab.hosts(count, release="bookworm", binds_ro=borrowed) as hosts, Hub(hosts.gateway).running() as hub:
        for one in hosts:
            for path in borrowed:
                for parent in Path(path).parents:
                    one.ssh_run(f"chmod o+x {parent}")
        yield Rack(hosts, hub, hub.add(REPO, repository(directory / "source", shard_bytes=2_000_000)), directory)

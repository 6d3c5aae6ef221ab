"""Four hosts and one hub: each file leaves the hub once, and every host verifies what it was given."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import lab
from tests.checkpoint.fetching import REPO, repository
from tests.lab.deploying import ROOT, inventory
from tests.lab.servers.faults import Fault
from tests.lab.servers.hub import Hub

pytestmark = pytest.mark.lab
PYTHON = Path(sys.executable)
BASE = Path(sys.base_prefix)
BORROWED = "/opt/borrowed"


@dataclass
class Rack:
    """Four hosts that borrow this machine's interpreter, and a hub."""

    hosts: lab.Lab
    hub: Hub
    commit: str
    directory: Path

    def start(self, name: str, count: int = 4, **settings: Any) -> subprocess.Popen[str]:
        """A deploy of the first `count` hosts."""
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
        play = ROOT / "tests/lab/plays/checkpoints.py"
        command = [str(PYTHON.with_name("pyinfra")), str(file), str(play), "-y", "--json"]
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


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """Booted once for the module."""
    directory = tmp_path_factory.mktemp("peers")
    # the environment may lie anywhere here, also below /tmp, which is a file system of its own on a host
    borrowed = {BORROWED: str(PYTHON.parents[1]), str(BASE): str(BASE)}
    # the service user must reach the interpreter through the directories above it
    with lab.hosts(4, release="bookworm", binds_ro=borrowed) as hosts, Hub(hosts.gateway).running() as hub:
        for one in hosts:
            for path in borrowed:
                for parent in Path(path).parents:
                    one.ssh_run(f"chmod o+x {parent}")
        yield Rack(hosts, hub, hub.add(REPO, repository(directory / "source", shard_bytes=2_000_000)), directory)


def test_the_hub_sends_each_file_once_and_all_four_hosts_verify_it(rack: Rack) -> None:
    done = rack.run("first")
    assert done.returncode == 0, done.stderr
    for path in (rack.directory / "source").rglob("*.safetensors"):
        assert rack.hub.sent(path.name) == path.stat().st_size
        assert rack.hub.count(path.name, where="cdn") == 1
    assert all('"whole": true' in answer for answer in rack.verified())
    for one in rack.hosts:
        assert one.ssh_run("systemctl is-active qwen-checkpoints", check=False).stdout.strip() != "active"
        assert one.ssh_run("find /run/qwen-fetch -name '*.job'").stdout == ""


def test_a_second_deploy_changes_nothing_and_asks_the_hub_for_nothing(rack: Rack) -> None:
    before = len(rack.hub.requests)
    done = rack.run("second")
    assert done.returncode == 0, done.stderr
    assert len(rack.hub.requests) == before
    operations = json.loads(done.stdout)["results"]["operations"]
    assert {one["name"] for one in operations if one["success"]} == set()
    assert any("Fetch checkpoints" in one["name"] for one in operations if one["no_change"])


def test_a_host_that_lost_a_file_gets_it_from_a_peer(rack: Rack) -> None:
    place = f"/srv/qwen/models/{REPO}/{rack.commit}"
    rack.hosts[1].ssh_run(f"rm {place}/config.json")
    before = len(rack.hub.requests)
    done = rack.run("third")
    assert done.returncode == 0, done.stderr
    assert len(rack.hub.requests) == before
    assert all('"whole": true' in answer for answer in rack.verified())


def test_a_fetch_outlives_the_deploy_that_started_it_and_the_next_one_follows_it(rack: Rack) -> None:
    newer = repository(rack.directory / "newer", shard_bytes=2_000_000, seed=1)
    rack.commit = rack.hub.add(REPO, newer)
    rack.hub.faults[:] = [Fault(where="cdn", bytes_per_second=100_000)]
    with rack.start("killed", count=1, qwen_model_source="hub") as process:
        while not rack.hub.count("model-00001-of-00003.safetensors", where="cdn") > 1:
            assert process.poll() is None
            select.select([], [], [], 0.1)
        process.kill()
    units = rack.hosts[0].ssh_run("systemctl list-units --plain --no-legend 'qwen-fetch-*'").stdout
    assert "running" in units
    done = rack.run("follows", count=1, qwen_model_source="hub")
    assert done.returncode == 0, done.stderr
    assert f"another deploy fetches {REPO} on this host: waiting for it" in done.stderr
    for path in newer.rglob("*.safetensors"):
        requests = [one for one in rack.hub.requests if one.file == path.name and one.path.endswith(path.name)]
        assert sum(one.sent for one in requests[-1:]) == path.stat().st_size
    assert '"whole": true' in rack.verified()[0]

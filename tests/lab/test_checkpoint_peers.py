"""Four hosts and one hub: each file leaves the hub once, and every host verifies what it was given."""

from __future__ import annotations

import json
import select
from collections.abc import Iterator

import pytest

from tests.checkpoint.fetching import REPO, repository
from tests.lab.checkpoint_rack import Rack, racked
from tests.lab.servers.faults import Fault

pytestmark = pytest.mark.lab
TOKEN = "hf_of_this_lab_8c1d"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """Booted once for the module."""
    with racked(4, tmp_path_factory.mktemp("peers")) as found:
        yield found


def test_the_hub_sends_each_file_once_and_all_four_hosts_verify_it(rack: Rack) -> None:
    rack.hub.tokens[TOKEN] = True
    done = rack.run("first", qwen_hub_token=TOKEN)
    assert done.returncode == 0, done.stderr
    assert any(request.authorized for request in rack.hub.requests)
    assert TOKEN not in done.stdout + done.stderr
    for path in (rack.directory / "source").rglob("*.safetensors"):
        assert rack.hub.sent(path.name) == path.stat().st_size
        assert rack.hub.count(path.name, where="cdn") == 1
    assert all('"whole": true' in answer for answer in rack.verified())
    for one in rack.hosts:
        assert one.ssh_run("systemctl is-active qwen-checkpoints", check=False).stdout.strip() != "active"
        assert one.ssh_run("find /run/qwen-fetch -name '*.job'").stdout == ""
        told = f"journalctl --no-pager | grep {TOKEN}; grep -rl {TOKEN} /run /var/log /etc /srv"
        assert one.ssh_run(told, check=False).stdout == ""


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


def test_of_two_deploys_at_once_on_a_host_one_fetches_and_both_end_well(rack: Rack) -> None:
    newer = repository(rack.directory / "two", shard_bytes=2_000_000, seed=2)
    rack.commit = rack.hub.add(REPO, newer)
    rack.hub.faults[:] = [Fault(where="cdn", bytes_per_second=200_000)]
    before = len(rack.hub.requests)
    with (
        rack.start("one", count=1, qwen_model_source="hub") as one,
        rack.start("two", count=1, qwen_model_source="hub") as two,
    ):
        said = [process.communicate(timeout=300)[1] for process in (one, two)]
    assert (one.returncode, two.returncode) == (0, 0), said
    rack.hub.faults.clear()
    assert any("another deploy fetches" in text for text in said)
    for path in newer.rglob("*.safetensors"):
        asked = [request for request in rack.hub.requests[before:] if request.file == path.name]
        assert sum(request.sent for request in asked) == path.stat().st_size
    assert '"whole": true' in rack.verified()[0]


def test_a_fetch_outlives_the_deploy_that_started_it_and_the_next_one_follows_it(rack: Rack) -> None:
    newer = repository(rack.directory / "newer", shard_bytes=2_000_000, seed=1)
    rack.commit = rack.hub.add(REPO, newer)
    rack.hub.faults[:] = [Fault(where="cdn", bytes_per_second=100_000)]
    before = rack.hub.count("model-00001-of-00003.safetensors", where="cdn")
    with rack.start("killed", count=1, qwen_model_source="hub") as process:
        while rack.hub.count("model-00001-of-00003.safetensors", where="cdn") == before:
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

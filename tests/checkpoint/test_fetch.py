"""A checkpoint is whole or it does not count, whatever hub, network, disk and people do meanwhile."""

from __future__ import annotations

import json
import os
import select
from pathlib import Path

import pytest

from qwenlab.remote.checkpoint import manifest
from tests.checkpoint import fetching
from tests.checkpoint.fetching import REPO, WANTED, Host
from tests.lab.servers import faults
from tests.lab.servers.faults import Fault

SHARDS = {f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)}


def test_what_an_engine_reads_arrives_verified_with_a_manifest(rack: Host) -> None:
    code, words = rack.fetch()
    assert (code, words) == (0, "")
    assert rack.files() == WANTED | SHARDS | {manifest.NAME}
    assert rack.whole()
    assert rack.status()["state"] == "done"
    known = manifest.read(rack.directory())
    assert known is not None
    assert {entry.path for entry in known.files} == WANTED | SHARDS
    assert all(entry.sha256 is not None and len(entry.sha256) == 64 for entry in known.files)
    assert rack.status()["done"] == rack.status()["total"] == known.size
    assert not list(rack.root.glob("job-*"))  # it may have held a token


def test_a_second_fetch_asks_the_hub_for_nothing(rack: Host) -> None:
    rack.fetch()
    before = len(rack.hub.requests)
    assert rack.fetch() == (0, "")
    assert len(rack.hub.requests) == before


@pytest.mark.parametrize(
    "fault",
    [
        faults.rate_limited(0, times=2),
        faults.broken(503, times=2),
        Fault(where="cdn", times=3, reset_at=100_001),
        Fault(where="cdn", times=1, corrupt=True),
    ],
    ids=["429", "503", "reset", "wrong bit"],
)
def test_a_hub_that_recovers_is_forgiven(rack: Host, fault: Fault) -> None:
    rack.hub.faults[:] = [fault]
    code, words = rack.fetch()
    assert (code, words) == (0, "")
    assert rack.whole()


def test_a_server_that_forgets_ranges_and_breaks_off_leaves_no_hole(rack: Host) -> None:
    """The second request is answered from the first byte on and breaks off early; the third goes on from there."""
    name = sorted(SHARDS)[0]
    rack.hub.faults[:] = [
        Fault(where="cdn", files=name, times=1, reset_at=150_000, orderly=True),
        Fault(where="cdn", files=name, times=1, no_ranges=True, reset_at=70_000, orderly=True),
    ]
    assert rack.fetch() == (0, "")
    ranges = [request.range for request in rack.hub.requests if request.file == name and request.where == "cdn"]
    assert ranges == [None, "bytes=150000-", "bytes=70000-"]
    assert rack.whole()


def test_retry_after_is_obeyed_and_too_many_failures_end_it(rack: Host) -> None:
    rack.hub.faults[:] = [faults.rate_limited(0)]
    code, words = rack.fetch(attempts=3)
    assert code == 1
    assert "limits the rate (HTTP 429)" in words
    assert rack.hub.count() == 3
    assert not rack.whole()


def test_the_token_goes_to_the_hub_and_not_to_where_it_redirects(rack: Host) -> None:
    rack.hub.tokens["hf_me"] = True
    assert rack.fetch(token="hf_me") == (0, "")
    assert all(request.authorized for request in rack.hub.requests if request.where == "resolve")
    assert not any(request.authorized for request in rack.hub.requests if request.where == "cdn")


def test_another_format_than_planned_is_refused_before_the_first_shard(rack: Host) -> None:
    code, said = rack.fetch(format="fp8")
    assert code == 1
    assert "not in the format 'fp8' that the plan counts on, its config.json says compressed-tensors" in said
    assert rack.hub.count(where="cdn") == 0
    assert rack.fetch(format="int4-autoround")[0] == 0


def test_a_branch_is_resolved_once_and_stays_at_that_commit(rack: Host) -> None:
    assert rack.fetch(revision="main") == (0, "")
    assert os.readlink(rack.directory("main")) == rack.commit
    (rack.root / "source" / "config.json").write_text("{}")
    newer = rack.hub.add(REPO, rack.root / "source")
    assert newer != rack.commit
    before = len(rack.hub.requests)
    assert rack.fetch(revision="main") == (0, "")
    assert len(rack.hub.requests) == before
    assert rack.whole("main")


def test_killed_ten_times_at_random_points_it_ends_whole_and_fetches_little_twice(tmp_path: Path) -> None:
    with fetching.host(tmp_path, shards=4, shard_bytes=3_000_000) as host:
        host.hub.faults[:] = [Fault(where="cdn", bytes_per_second=4_000_000)]
        assert host.killed_ten_times(1_000_000) == 10
        assert host.fetch() == (0, "")
        assert host.whole()
        known = manifest.read(host.directory())
        assert known is not None
        sent = sum(request.sent for request in host.hub.requests)
        assert sent < 1.3 * known.size, f"{sent} bytes were sent for {known.size}"


def test_a_verified_file_is_not_read_or_fetched_again_by_the_next_run(rack: Host) -> None:
    bad = sorted(SHARDS)[-1]
    others = SHARDS - {bad}
    rack.hub.faults[:] = [Fault(where="cdn", files=bad, status=403)]
    for _ in range(20):  # the refusal also ends the files that are under way; each run brings them further
        assert rack.fetch()[0] == 1
        if all((rack.directory() / name).exists() for name in others):
            break
    sent = {name: rack.hub.sent(name) for name in others}
    rack.hub.faults.clear()
    assert rack.fetch() == (0, "")
    assert {name: rack.hub.sent(name) for name in others} == sent
    assert rack.hub.sent("config.json") == (rack.directory() / "config.json").stat().st_size


@pytest.mark.parametrize(
    ("verify", "damage"),
    [("digest", "flip"), ("size", "shorten"), ("size", "remove"), ("digest", "remove")],
)
def test_a_damaged_file_is_fetched_again_alone(rack: Host, verify: str, damage: str) -> None:
    rack.fetch()
    name = sorted(SHARDS)[1]
    shard = rack.directory() / name
    size = shard.stat().st_size
    if damage == "flip":
        with shard.open("r+b") as handle:
            handle.seek(1234)
            byte = handle.read(1)
            handle.seek(1234)
            handle.write(bytes([byte[0] ^ 1]))
    elif damage == "shorten":
        os.truncate(shard, 100)
    else:
        shard.unlink()
    rack.hub.requests.clear()
    assert rack.fetch(verify=verify) == (0, "")
    assert {request.file for request in rack.hub.requests if request.sent} == {name}
    assert rack.hub.sent(name) == size
    assert rack.whole()


def test_while_a_damaged_file_cannot_be_had_the_checkpoint_does_not_count(rack: Host) -> None:
    rack.fetch()
    (rack.directory() / sorted(SHARDS)[0]).unlink()
    rack.hub.faults[:] = [faults.broken(503)]
    assert rack.fetch(attempts=2)[0] == 1
    assert manifest.read(rack.directory()) is None


def test_files_of_two_checkpoints_with_the_same_content_are_stored_once(rack: Host) -> None:
    rack.fetch()
    source = rack.root / "source"
    (source / "config.json").write_text(json.dumps({"quantization_config": fetching.QUANTIZED, "newer": True}))
    newer = rack.hub.add(REPO, source)
    rack.hub.requests.clear()
    assert rack.fetch(revision=newer) == (0, "")
    assert rack.whole(newer)
    assert {request.file for request in rack.hub.requests if request.sent} == {"config.json"}
    for name in SHARDS:
        assert (rack.directory(newer) / name).samefile(rack.directory() / name)


def test_a_damaged_file_of_another_checkpoint_is_not_linked(rack: Host) -> None:
    rack.fetch()
    name = sorted(SHARDS)[0]
    (rack.directory() / name).write_bytes(b"\0" * (rack.directory() / name).stat().st_size)
    (rack.root / "source" / "config.json").write_text("{}")
    newer = rack.hub.add(REPO, rack.root / "source")
    assert rack.fetch(revision=newer) == (0, "")
    assert rack.whole(newer)


def test_of_two_deploys_at_once_the_second_waits_and_says_so(rack: Host) -> None:
    slow = Fault(where="cdn", bytes_per_second=20_000)
    rack.hub.faults[:] = [slow]
    with rack.start() as first:
        while not rack.hub.count(where="cdn"):
            select.select([], [], [], 0.01)
        with rack.start(status=str(rack.root / "second.json")) as second:
            assert second.stdout is not None
            assert "waiting: another deploy fetches this checkpoint on this host" in second.stdout.readline()
            slow.bytes_per_second = None
            assert second.communicate(timeout=60)[1] == ""
        assert (first.wait(timeout=60), second.returncode) == (0, 0)
    assert rack.whole()
    for name in SHARDS:
        assert rack.hub.sent(name) == (rack.directory() / name).stat().st_size


def test_a_file_name_that_leads_out_of_the_checkpoint_is_refused(rack: Host) -> None:
    entry = {"path": "../../outside", "size": 1, "sha256": "0" * 64}
    document = {"schema": 1, "repo": REPO, "revision": rack.commit, "source": "x", "files": [entry]}
    code, said = rack.fetch(source="peer", manifest=document)
    assert code == 1
    assert "names a file outside the checkpoint" in said

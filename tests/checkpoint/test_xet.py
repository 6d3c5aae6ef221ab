"""Files in Xet storage come from there, by the real hf-xet, and over plain HTTP when that does not work."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from tests.checkpoint import fetching
from tests.checkpoint.fetching import Host
from tests.lab.servers import faults
from tests.lab.servers.faults import Fault

SHARDS = {f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3)}


@pytest.fixture
def rack(rack: Host) -> Host:
    """A host and a hub with Xet storage."""
    rack.hub.xet = True
    return rack


def test_what_the_hub_has_in_xet_storage_comes_from_there(rack: Host) -> None:
    assert rack.fetch() == (0, "")
    assert rack.whole()
    assert all(rack.hub.count(name, where="xet") for name in SHARDS)
    assert rack.hub.count(where="cdn") == 0
    assert rack.hub.count(method="POST") == 0  # hf-xet would report each transfer to the storage's owner
    assert rack.status()["done"] == rack.status()["total"]


def test_plain_http_can_be_asked_for(rack: Host) -> None:
    assert rack.fetch(fetcher="ranges") == (0, "")
    assert rack.whole()
    assert rack.hub.count(where="xet") == 0


def test_the_storage_is_asked_with_its_own_token_and_never_with_the_hub_s(rack: Host) -> None:
    rack.hub.tokens["hf_owner"] = True
    commit = rack.hub.add("lab/gated", rack.root / "source", gated=True)
    assert rack.fetch(repo="lab/gated", revision=commit, token="hf_owner") == (0, "")
    assert rack.whole(commit, "lab/gated")
    asked = [request for request in rack.hub.requests if request.where == "xet"]
    assert asked
    assert all(request.authorized for request in asked if "reconstructions" in request.path and request.status == 200)


@pytest.mark.parametrize(
    "fault",
    [
        faults.unauthorized(where="xet"),
        Fault(where="xet", status=404, message="no such file"),
        Fault(where="xet", corrupt=True),
    ],
    ids=["401", "404", "wrong bit"],
)
def test_when_the_storage_fails_plain_http_brings_the_rest(
    rack: Host, fault: Fault, capsys: pytest.CaptureFixture[str]
) -> None:
    rack.hub.faults[:] = [fault]
    assert rack.fetch() == (0, "")
    assert rack.whole()
    assert all(rack.hub.count(name, where="cdn") for name in SHARDS)
    said = capsys.readouterr().out
    assert fault.corrupt or "Xet storage does not work" in said
    assert said.count("going on over plain HTTP") <= 1


def test_a_firewall_that_lets_through_the_hub_alone_is_no_hindrance(
    rack: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        rack.hub.xet_url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    assert rack.fetch() == (0, "")
    assert rack.whole()
    assert "Xet storage does not work" in capsys.readouterr().out


@pytest.mark.parametrize("trouble", ["no token of the storage is given out", "hf-xet cannot be imported"])
def test_a_storage_that_cannot_be_begun_with_is_left(
    rack: Host, trouble: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if trouble.startswith("no token"):
        monkeypatch.setattr(rack.hub, "_xet_token", lambda handler, name, revision: handler.reply(403, b"no"))
    else:
        monkeypatch.setitem(sys.modules, "hf_xet", None)
    assert rack.fetch() == (0, "")
    assert rack.whole()
    assert rack.hub.count(where="xet") == 0
    assert "Xet storage does not work" in capsys.readouterr().out


def test_a_refusal_by_the_hub_itself_has_the_words_of_plain_http(rack: Host) -> None:
    rack.hub.faults[:] = [Fault(where="resolve", files="*.safetensors", status=403, message="denied")]
    code, said = rack.fetch(attempts=2)
    assert code == 1
    assert "HTTP 403" in said
    assert "Xet" not in said


def test_a_file_that_plain_http_began_is_ended_by_xet_at_the_byte_it_had_reached(rack: Host) -> None:
    name = sorted(SHARDS)[0]
    rack.hub.faults[:] = [Fault(where="cdn", files=name, reset_at=100_000, orderly=True)]
    assert rack.fetch(fetcher="ranges", attempts=1)[0] == 1
    assert (rack.directory() / f"{name}.incomplete").stat().st_size == 100_000
    rack.hub.faults.clear()
    rack.hub.requests.clear()
    assert rack.fetch() == (0, "")
    assert rack.whole()
    asked = [
        request.range for request in rack.hub.requests if request.file == name and "reconstructions" in request.path
    ]
    assert asked == ["bytes=100000-199999"]


@pytest.mark.slow
def test_killed_ten_times_at_random_points_little_comes_twice(tmp_path: Path) -> None:
    with fetching.host(tmp_path, shards=4, shard_bytes=8_000_000) as host:
        host.hub.xet = True
        host.hub.faults[:] = [Fault(where="xet", bytes_per_second=12_000_000)]
        assert host.killed_ten_times(2_500_000, xet_buffer=400_000) == 10
        assert host.fetch(xet_buffer=400_000) == (0, "")
        assert host.whole()
        size = sum(path.stat().st_size for path in (tmp_path / "source").glob("*.safetensors"))
        sent = sum(request.sent for request in host.hub.requests)
        assert host.hub.count(where="cdn") == 0
        assert sent < 1.3 * size, f"{sent} bytes were sent for {size}"

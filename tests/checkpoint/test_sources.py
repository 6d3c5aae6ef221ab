"""Checkpoints from a peer and from a disk."""

from __future__ import annotations

import http.client
import io
import json
import os
import select
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from qwenlab.remote.checkpoint import manifest
from tests.checkpoint.fetching import REPO, ROOT, WANTED, Host
from tests.lab.servers.faults import Fault
from tests.lab.servers.http import Handler, Server
from tests.ports import free_port


@contextmanager
def peer(rack: Host, allowed: list[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The server of a host that has the checkpoint, as a deploy starts it."""
    port = free_port()
    job = rack.root / "serve.json"
    place = f"{REPO}/{rack.commit}"
    job.write_text(
        json.dumps(
            {
                "models": str(rack.models),
                "directories": [place],
                "address": "127.0.0.1",
                "port": port,
                "allowed": allowed,
            }
        )
    )
    command = [sys.executable, "-B", "-m", "qwenlab.remote.checkpoint.serve", str(job)]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert "serving" in process.stdout.readline()
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.kill()


def receiver(rack: Host, root: Path) -> Host:
    """A second host of the same lab."""
    root.mkdir()
    return Host(root, rack.hub, rack.commit)


def document(rack: Host) -> dict[str, Any]:
    """The manifest that the control machine reads on the peer."""
    known = manifest.read(rack.directory())
    assert known is not None
    return known.to_dict()


def test_a_peer_gives_what_it_verified_and_the_hub_is_not_asked(rack: Host, tmp_path: Path) -> None:
    rack.fetch()
    before = len(rack.hub.requests)
    other = receiver(rack, tmp_path / "other")
    with peer(rack, ["127.0.0.1"]) as (url, _):
        assert other.fetch(source="peer", endpoint=url, manifest=document(rack)) == (0, "")
    assert other.whole()
    assert len(rack.hub.requests) == before


def test_a_peer_whose_file_is_damaged_is_found_out(rack: Host, tmp_path: Path) -> None:
    rack.fetch()
    given = document(rack)
    shard = next(rack.directory().glob("*.safetensors"))
    shard.write_bytes(bytes(shard.stat().st_size))
    other = receiver(rack, tmp_path / "other")
    with peer(rack, ["127.0.0.1"]) as (url, _):
        code, said = other.fetch(source="peer", endpoint=url, manifest=given)
    assert code == 1
    assert f"{shard.name} arrived 3 times with another content" in said
    assert not other.whole()


def test_a_peer_that_vanishes_is_named_and_what_came_is_kept(rack: Host, tmp_path: Path) -> None:
    rack.fetch()
    other = receiver(rack, tmp_path / "other")
    with peer(rack, ["127.0.0.1"]) as (url, process):
        process.kill()
        process.wait()
        code, said = other.fetch(source="peer", endpoint=url, manifest=document(rack), attempts=2)
    assert code == 1
    assert f"the peer at {url} does not answer" in said
    assert "qwen_model_source = 'hub'" in said
    assert other.fetch() == (0, "")
    assert other.whole()


def test_what_a_peer_gave_before_it_vanished_is_not_fetched_again(rack: Host, tmp_path: Path) -> None:
    rack.fetch()
    other = receiver(rack, tmp_path / "other")
    name = "model-00001-of-00003.safetensors"

    def answer(handler: Handler) -> None:
        content = (rack.models / handler.route.strip("/")).read_bytes()
        half = len(content) // 2 if handler.route.endswith(name) else len(content)
        if handler.headers.get("Range"):
            handler.break_connection(orderly=True)
            return
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[:half])
        if half < len(content):
            handler.break_connection(orderly=True)

    server = Server("127.0.0.1", answer)
    with server.running():
        code, said = other.fetch(source="peer", endpoint=server.url, manifest=document(rack), attempts=2)
    assert code == 1
    assert f"the peer at {server.url} does not answer" in said
    assert not other.whole()
    assert (other.directory() / f"{name}.incomplete").stat().st_size == 100_000
    rack.hub.requests.clear()
    assert other.fetch() == (0, "")
    assert other.whole()
    assert rack.hub.sent(name) == 100_000


@pytest.mark.parametrize(
    ("allowed", "path", "status"),
    [
        (["127.0.0.9"], "config.json", 403),
        (["127.0.0.1"], "config.json", 200),
        (["127.0.0.1"], "../../../../etc/passwd", 404),
        (["127.0.0.1"], "manifest.json", 404),
        (["127.0.0.1"], "secret", 404),
    ],
)
def test_a_peer_serves_files_of_manifests_to_hosts_of_the_deploy_alone(
    rack: Host, allowed: list[str], path: str, status: int
) -> None:
    rack.fetch()
    (rack.directory() / "secret").write_text("x")
    with peer(rack, allowed) as (url, _):
        asked = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
        asked.request("GET", f"/{REPO}/{rack.commit}/{path}")
        assert asked.getresponse().status == status
        asked.close()


@pytest.mark.parametrize("layout", ["own", "hub cache", "repository", "name", "itself"])
def test_a_directory_is_taken_in_each_layout_that_people_have(rack: Host, layout: str) -> None:
    disk = rack.root / "disk"
    places = {
        "own": disk / REPO / rack.commit,
        "hub cache": disk / "models--lab--tiny" / "snapshots" / rack.commit,
        "repository": disk / REPO,
        "name": disk / "tiny",
        "itself": disk,
    }
    shutil.copytree(rack.root / "source", places[layout])
    assert rack.fetch(source="path", place=str(disk)) == (0, "")
    assert rack.whole()
    assert rack.files() >= WANTED
    assert not rack.hub.requests


def test_an_archive_is_unpacked_verified_and_removed(rack: Host) -> None:
    archive = rack.root / "models.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(rack.root / "source", arcname=f"{REPO}/{rack.commit}")
    assert rack.fetch(source="path", place=str(archive)) == (0, "")
    assert rack.whole()
    assert not list(rack.models.rglob("*.unpacked"))


def test_an_archive_cannot_write_outside_and_a_cut_one_is_named(rack: Host) -> None:
    archive = rack.root / "bad.tar"
    with tarfile.open(archive, "w") as opened:
        info = tarfile.TarInfo("../../escaped")
        info.size = 1
        opened.addfile(info, io.BytesIO(b"x"))
    code, said = rack.fetch(source="path", place=str(archive))
    assert code == 1
    assert "is no whole tar archive" in said
    assert not (rack.models / "escaped").exists()
    archive.write_bytes(b"no archive at all")
    assert "is no whole tar archive" in rack.fetch(source="path", place=str(archive))[1]


def test_a_copy_that_came_with_a_manifest_is_held_against_it(rack: Host) -> None:
    rack.fetch()
    disk = rack.root / "disk" / REPO
    disk.mkdir(parents=True)
    shutil.move(rack.directory(), disk / rack.commit)
    shard = next((disk / rack.commit).glob("*.safetensors"))
    shard.write_bytes(bytes(shard.stat().st_size))
    code, said = rack.fetch(source="path", place=str(rack.root / "disk"))
    assert code == 1
    assert f"{shard} is damaged" in said


@pytest.mark.parametrize(
    ("place", "words"),
    [("/nowhere", "is the disk mounted?"), (".", "holds no lab/tiny: a config.json was looked for in")],
)
def test_a_disk_without_it_is_named(rack: Host, place: str, words: str) -> None:
    empty = rack.root / "empty"
    empty.mkdir()
    code, said = rack.fetch(source="path", place=str(empty) if place == "." else place)
    assert code == 1
    assert words in said


@contextmanager
def mounted(directory: Path, options: str) -> Iterator[None]:
    """A file system of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.lab
def test_too_small_a_disk_is_refused_before_the_first_byte(rack: Host) -> None:
    with mounted(rack.models, "size=1m"):
        code, said = rack.fetch()
        assert code == 1
        assert f"the disk below {rack.models / REPO}" in said or f"the disk below {rack.models}" in said
        assert "plays/prune.py" in said
        assert sum(request.sent for request in rack.hub.requests) == 0


@pytest.mark.lab
def test_a_disk_that_fills_up_meanwhile_is_named_and_the_next_run_goes_on(rack: Host) -> None:
    with mounted(rack.models, "size=80m"):
        rack.hub.faults[:] = [Fault(where="cdn", bytes_per_second=50_000)]
        with rack.start() as process:
            while not rack.hub.count(where="cdn"):
                select.select([], [], [], 0.01)
            filler = os.open(rack.models / "filler", os.O_WRONLY | os.O_CREAT)
            with suppress(OSError):  # the disk is full
                while os.write(filler, bytes(64 << 10)):
                    pass
            os.close(filler)
            _, said = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "is full: free room" in said
        assert manifest.read(rack.directory()) is None
        (rack.models / "filler").unlink()
        rack.hub.faults.clear()
        assert rack.fetch() == (0, "")
        assert rack.whole()


@pytest.mark.lab
def test_a_read_only_target_is_named(rack: Host) -> None:
    with mounted(rack.models, "size=1m,ro"):
        code, said = rack.fetch()
    assert code == 1
    assert "is read-only: mount it writable" in said

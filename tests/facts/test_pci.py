"""What sysfs tells before any driver: ids, link limits of the slot's path, and how far cards are apart."""

from __future__ import annotations

import pytest

from qwenlab.facts.pci import parse_lspci, parse_sysfs
from qwenlab.facts.readings import ParseError
from qwenlab.host_inventory import ParseState, Source
from tests.facts.hosts import codes, host


def card(address: str, path: str, device: str = "0x2204", numa: str = "0", **more: str) -> str:
    lines = [f"@device {address}", f"path /sys/devices/{path}/{address}", "vendor 0x10de", "class 0x030000"]
    lines += [f"device {device}", f"numa_node {numa}", *(f"{name} {value}" for name, value in more.items())]
    return "\n".join(lines) + "\n"


ROOT = "pci0000:00"
UP = f"{ROOT}/0000:00:01.0"
SWITCH = f"{UP}/0000:01:00.0"


@pytest.mark.parametrize(
    ("first", "second", "label"),
    [
        (f"{SWITCH}/0000:02:00.0", f"{SWITCH}/0000:02:01.0", "PIX"),
        (f"{SWITCH}/0000:02:00.0/0000:05:00.0/0000:06:00.0", f"{SWITCH}/0000:02:01.0", "PXB"),
        (f"{ROOT}/0000:00:01.0", f"{ROOT}/0000:00:03.0", "PHB"),
        (ROOT, ROOT, "PHB"),
        (f"{ROOT}/0000:00:01.0", "pci0000:40/0000:40:01.0", "NODE"),
    ],
)
def test_common_ancestor_from_the_device_tree(first: str, second: str, label: str) -> None:
    bus = parse_sysfs(card("0000:0a:00.0", first) + card("0000:0b:00.0", second))
    assert [pair.ancestor for pair in bus.reading.pairs] == [label]


def test_two_host_bridges_of_unknown_node_stay_unknown() -> None:
    text = card("0000:0a:00.0", "pci0000:00", numa="-1") + card("0000:4a:00.0", "pci0000:40", numa="-1")
    assert parse_sysfs(text).reading.pairs[0].ancestor is None
    far = card("0000:0a:00.0", "pci0000:00", numa="0") + card("0000:4a:00.0", "pci0000:40", numa="1")
    assert parse_sysfs(far).reading.pairs[0].ancestor == "SYS"


def test_the_slowest_bridge_on_the_path_limits_the_slot() -> None:
    text = card("0000:03:00.0", SWITCH, max_link_speed="16.0 GT/s PCIe", max_link_width="16", current_link_width="4")
    text += "@bridge 0000:01:00.0\nmax_link_speed 16.0 GT/s PCIe\nmax_link_width 16\n"
    text += "@bridge 0000:00:01.0\nmax_link_speed 8.0 GT/s PCIe\nmax_link_width 4\n"
    (found,) = parse_sysfs(text).reading.cards
    assert (found.generation_max, found.width_max, found.width_now) == (4, 16, 4)
    assert (found.generation_slot, found.width_slot) == (3, 4)


def test_cards_come_in_bus_order_and_other_functions_do_not_count() -> None:
    text = card("0000:41:00.0", "pci0000:40") + card("0000:01:00.0", ROOT)
    text += "@device 0000:05:00.0\nclass 0x068000\ndevice 0x22a3\n"
    bus = parse_sysfs(text)
    assert [found.bus_id for found in bus.reading.cards] == ["0000:01:00.0", "0000:41:00.0"]
    assert bus.nvswitches == 1


@pytest.mark.parametrize("text", ["vendor 0x10de\n", "@device nonsense\n"])
def test_a_foreign_capture_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_sysfs(text)


def test_lspci_shows_a_card_that_left_the_bus() -> None:
    reading = parse_lspci(
        "21:00.0 3D controller: NVIDIA Corporation (rev ff)\n"
        "c1:00.0 VGA compatible controller [0300]: NVIDIA Corporation GA102 [10de:2204] (rev a1)\n"
        "65:00.0 VGA compatible controller: Advanced Micro Devices, Inc. [AMD/ATI] Device 1586\n"
    )
    assert [(found.bus_id, found.device_id, found.fault) for found in reading.cards] == [
        ("0000:21:00.0", None, "fallen off the bus"),
        ("0000:c1:00.0", "2204", None),
    ]


def test_before_the_driver_the_device_table_names_the_card() -> None:
    inventory = host(pci=card("0000:01:00.0", ROOT) + card("0000:02:00.0", ROOT, device="0x2bb9"))
    known, family_only = inventory.gpus
    assert (known.name, known.compute_capability) == ("NVIDIA GeForce RTX 3090", (8, 6))
    assert known.memory_total_mib == 24576
    assert known.provenance["name"] is Source.DEVICE_TABLE
    assert known.provenance["pci_device_id"] is Source.SYSFS
    assert (family_only.name, family_only.architecture, family_only.compute_capability) == (None, "Blackwell", (12, 0))
    assert inventory.parse is ParseState.DEGRADED
    assert len(inventory.usable_gpus) == 2
    assert "driver_not_installed" in codes(inventory)

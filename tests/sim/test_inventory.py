"""Inventories and what they are made from."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tests.sim import inventory
from tests.sim.corpus import from_record

INVALID = [
    ("gpus: [{card: NVIDIA GeForce RTX 9999, bus: '0000:01:00.0'}]", "not in cards.yaml: NVIDIA GeForce RTX 9999"),
    ("gpus: [{card: NVIDIA L4, buses: ['0000:02:00.0', '0000:01:00.0']}]", "PCI bus order"),
    ("gpus: [{card: NVIDIA L4, buses: ['0000:02:00.0', '0000:02:00.0']}]", "each on its own bus id"),
    ("gpus: [{card: NVIDIA L4, bus: '0000:02:00.0'}]\npairs: [{a: 0, b: 1}]", "0 <= a < b < number of cards"),
    ("colour: green", "Extra inputs"),
]


@pytest.mark.parametrize(("text", "words"), INVALID)
def test_a_wrong_inventory_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        inventory.parse(text, "m")


def test_uuids_are_the_same_in_every_run_and_differ_by_card() -> None:
    first, second = (inventory.load("2x3090").uuid(index) for index in range(2))
    assert first == inventory.load("2x3090").uuid(0) == "GPU-848004ee-ecc1-52a2-a221-7dd68958e71b"
    assert first != second


RECORD = {
    "id": "record",
    "driver": "595.71.05 (patched)",
    "cuda": "13.2",
    "os": "Ubuntu",
    "gpus": [
        {"index": 0, "name": "NVIDIA RTX A6000", "uuid": "GPU-b", "bus_id": "00000000:41:00.0", "ecc": "Off"},
        {"index": 1, "name": "NVIDIA RTX A6000", "uuid": "GPU-a", "bus_id": "00000000:01:00.0", "power_limit_w": 250},
        {"index": 2, "name": "NVIDIA L4", "uuid": "GPU-c", "bus_id": None, "vram_mib": 23034, "vram_free_mib": 23000},
    ],
    "topo_matrix": (
        "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
        "GPU0\t X \tNV4\tSYS\t0-31\t0\t\tN/A\n"
        "GPU1\tNV4\t X \tSYS\t0-31\t0\t\tN/A\n"
        "GPU2\tSYS\tSYS\t X \t32-63\t1\t\tN/A\n"
    ),
    "p2p_matrix": " \tGPU0\tGPU1\tGPU2\nGPU0\tX\tOK\tTNS\nGPU1\tOK\tX\tTNS\nGPU2\tTNS\tTNS\tX\n",
}


def test_a_record_becomes_a_machine_in_bus_order() -> None:
    host = from_record(RECORD)
    assert host is not None
    assert (host.driver, host.cuda) == ("595.71.05", "13.2")
    assert [(gpu.bus, gpu.uuid, gpu.numa) for gpu in host.gpus] == [
        ("0000:01:00.0", "GPU-a", 0),
        ("0000:02:00.0", "GPU-c", 1),  # no bus id recorded: the next one after the card before it
        ("0000:41:00.0", "GPU-b", 0),
    ]
    assert host.gpus[1].used_mib == 34
    assert host.gpus[0].power_limit_w == 250
    assert host.numa_cpus == {0: "0-31", 1: "32-63"}
    assert [(pair.a, pair.b, pair.nvlink, pair.ancestor, pair.peer) for pair in host.pairs] == [
        (0, 1, 0, "SYS", "TNS"),
        (0, 2, 4, None, "OK"),
        (1, 2, 0, "SYS", "TNS"),
    ]


@pytest.mark.parametrize("gpus", [[], [{"index": 0, "name": None, "uuid": "GPU-a"}]])
def test_a_record_without_known_cards_is_no_machine(gpus: list[dict[str, object]]) -> None:
    assert from_record({**RECORD, "gpus": gpus}) is None

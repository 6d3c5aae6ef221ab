"""Two real H200 behind an NVSwitch, gathered whole: the three sources tell the same of them."""

from __future__ import annotations

from qwenlab.facts.agreement import compare
from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.recording import Recording, load
from qwenlab.facts.summary import summarise
from qwenlab.host_inventory import Ancestor, HostInventory, ParseState
from tests.facts.hosts import DATA

GATHERED = DATA / "recorded" / "h200x2-gathered"
UNKNOWN_WITHOUT_NVML = {"provenance", "memory_reserved_mib"}
MOVES_BY_ITSELF = {"memory_used_mib"}


def without(*sources: str) -> HostInventory:
    recording = load(GATHERED)
    kept = {name: text for name, text in recording.captures.items() if name not in sources}
    return build_inventory(Recording(kept, recording.statuses, recording.given))


def test_nvml_nvidia_smi_and_sysfs_agree() -> None:
    lines, agree = compare(load(GATHERED))
    assert agree, lines
    assert [line.split(",")[0] for line in lines] == [
        "NVML and nvidia-smi: 2 cards",
        "NVML and sysfs: 2 cards",
        "NVML and topo -m: 1 pairs",
    ]


def test_the_pair_is_linked_through_the_switch_although_its_ancestor_is_a_host_bridge() -> None:
    inventory = without()
    (pair,) = inventory.pairs
    assert (pair.nvlink_lanes, pair.nvswitch, pair.ancestor) == (18, True, Ancestor.PHB)
    assert (pair.peer_read, pair.peer_write) == (True, True)
    assert inventory.parse is ParseState.OK
    assert [(gpu.name, gpu.compute_capability, gpu.memory_total_mib) for gpu in inventory.gpus] == [
        ("NVIDIA H200", (9, 0), 143_771)
    ] * 2


def test_the_inventory_is_the_same_without_nvml() -> None:
    both, smi = without(), without("nvml")
    assert summarise(both) == summarise(smi)
    for mine, other in zip(both.gpus, smi.gpus, strict=True):
        assert mine.model_dump(exclude=UNKNOWN_WITHOUT_NVML | MOVES_BY_ITSELF) == other.model_dump(
            exclude=UNKNOWN_WITHOUT_NVML | MOVES_BY_ITSELF
        )


def test_sysfs_alone_knows_how_many_cards_of_which_kind() -> None:
    bus = without("nvml", "smi_xml", "smi_table", "smi_list", "topo", "p2p_read", "p2p_write")
    assert [(gpu.pci_bus_id, gpu.pci_device_id) for gpu in bus.gpus] == [
        (gpu.pci_bus_id, gpu.pci_device_id) for gpu in without().gpus
    ]

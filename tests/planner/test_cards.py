"""Inventory and device table joined: what the planner knows of a card."""

from __future__ import annotations

import pytest

from qwenlab.host_inventory import Gpu, HostInventory, PcieLink
from qwenlab.planner import plan
from qwenlab.planner.cards import WSL2_SHARE_GIB, cards_of, fp16_tflops, names
from qwenlab.planner.throughput.calibration import data
from qwenlab.settings import load
from tests.data_sheets import data_sheet
from tests.planner.machines import MACHINES, inventories
from tests.planner.machines.build import Machine, machine

INVENTORIES = inventories()


def test_every_card_of_the_matrix_has_data_sheet_figures() -> None:
    for entry in MACHINES:
        cards, left = cards_of(INVENTORIES[entry.name])
        assert left == ()
        assert len(cards) == len(entry.cards)
        for card in cards:
            assert card.bandwidth_gb_s > 200
            assert card.fp16_tflops > 10
            assert 0 < card.in_use_gib + 1 <= card.memory_gib + 1


def test_memory_is_what_the_card_shows_less_what_the_driver_keeps() -> None:
    (card,) = cards_of(INVENTORIES["1x3090"])[0]
    assert card.memory_gib == pytest.approx((24_576 - 400) / 1024)
    assert card.in_use_gib == 0


def test_windows_takes_its_share_beside_what_is_seen_in_use() -> None:
    (card,) = cards_of(INVENTORIES["1x4090-wsl2"])[0]
    assert card.in_use_gib == pytest.approx(900 / 1024 + WSL2_SHARE_GIB)
    assert card.display_active


@pytest.mark.parametrize(
    ("link", "gb_s"),
    [
        (PcieLink(generation_max=4, generation_slot=4, width_max=16, width_slot=16), 31.5),
        (PcieLink(generation_max=4, generation_slot=3, width_max=16, width_slot=16), 15.8),
        (PcieLink(generation_max=4, generation_slot=4, width_max=16, width_slot=4), 7.9),
        (PcieLink(generation_now=1, generation_max=4, generation_slot=4, width_max=16, width_now=1), 2.0),
        (PcieLink(), 7.9),  # nothing known: a slot of 3.0 x8
    ],
)
def test_the_narrowest_part_of_the_path_counts_and_an_idle_generation_does_not(link: PcieLink, gb_s: float) -> None:
    inventory = INVENTORIES["1x3090"]
    gpu = inventory.gpus[0].model_copy(update={"pcie": link})
    (card,) = cards_of(inventory.model_copy(update={"gpus": (gpu,)}))[0]
    assert card.pcie_gb_s == pytest.approx(gb_s, abs=0.1)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("NVIDIA GeForce RTX 3090", 71, 71),  # the data sheet's
        ("NVIDIA GeForce RTX 5090 D", 148, 149),  # an eighth of 1187.5 with FP4
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 60, 110),  # RTX 4090's silicon with 57 % of the bandwidth
        ("NVIDIA H100 SXM5 64GB", 400, 900),  # H100 with fewer stacks of memory
        ("NVIDIA CMP 170HX", 30, 30),  # cut down by its maker: like nothing else
    ],
)
def test_a_rate_that_no_data_sheet_states_follows_from_the_same_silicon(name: str, low: float, high: float) -> None:
    assert low <= fp16_tflops(data_sheet(name=name)) <= high


def test_a_card_without_a_stated_rate_is_no_cliff_beside_its_kin() -> None:
    """With a flat guess an H100 of 64 GB was planned at a quarter of an H100's speed."""

    def rate(name: str) -> float:
        predicted = plan(machine(Machine("one", ((name, None),))), load({})).engines[0].predicted
        return predicted.decode_tok_s if predicted else 0.0

    assert rate("NVIDIA H100 SXM5 64GB") > 0.6 * rate("NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("0", True),
        ("1", False),
        ("GPU-00000000-0000-0000-0000-00003090aaaa", True),
        ("gpu-00000000-0000-0000-0000-00003090AAAA", True),
        ("0000:0a:00.0", True),
        ("00000000:0A:00.0", True),  # as nvidia-smi prints it
        ("0a:00.0", True),  # as lspci prints it
        ("0001:0a:00.0", False),
        ("0b:00.0", False),
        ("", False),
        ("None", False),
    ],
)
def test_a_card_is_named_as_any_tool_prints_it(word: str, named: bool) -> None:
    gpu = Gpu(index=0, uuid="GPU-00000000-0000-0000-0000-00003090aaaa", pci_bus_id="0000:0a:00.0")
    assert names(word, gpu) is named
    assert not names("x", Gpu(index=3))


def test_a_card_without_memory_is_left_out() -> None:
    inventory = INVENTORIES["1x3090"]
    gpu = inventory.gpus[0].model_copy(update={"memory_total_mib": 0})
    (left,) = cards_of(inventory.model_copy(update={"gpus": (gpu,)}))[1]
    assert left.code == "memory-unknown"


def unified(total: float | None, available: float | None) -> HostInventory:
    """A GB10 board: its GPU has no memory of its own."""
    changed = {"name": "NVIDIA GB10", "pci_device_id": "2e12", "memory_total_mib": None, "memory_unified": True}
    inventory = INVENTORIES["1x3090"]
    gpu = inventory.gpus[0].model_copy(update={**changed, "compute_capability": (12, 1)})
    ram = {"ram_total_gib": total, "ram_available_gib": available}
    return inventory.model_copy(update={"gpus": (gpu,), **ram})


@pytest.mark.parametrize(
    ("available", "free"),
    [(116.0, 69.6), (50.0, 30.0), (None, 73.0)],  # 60 % of it; of all where nobody asked what is available
)
def test_a_card_that_shares_the_hosts_memory_is_budgeted_from_it(available: float | None, free: float) -> None:
    (card,) = cards_of(unified(121.7, available))[0]
    assert card.memory_gib == 121.7
    assert card.memory_gib - card.in_use_gib == pytest.approx(free, abs=0.1)


def test_the_plan_of_a_shared_memory_says_so_and_never_claims_more_than_its_part() -> None:
    made = plan(unified(121.7, 116.0), load({}))
    (rank,) = made.engines[0].memory
    assert rank.weights + rank.kv + rank.workspace + rank.graphs <= 69.6
    assert made.engines[0].args["gpu-memory-utilization"] <= 0.6
    assert any("no memory of its own" in note for note in made.warnings)
    assert any("5.7 GiB are held by other programs" in note for note in made.warnings)


def test_shared_memory_of_unknown_size_is_left_out_with_the_reason() -> None:
    (left,) = cards_of(unified(None, None))[1]
    assert left.code == "memory-unknown"
    assert "the host's RAM" in left.why


def test_a_card_that_the_table_lacks_is_planned_with_cautious_figures() -> None:
    inventory = INVENTORIES["1x3090"]
    gpu = inventory.gpus[0].model_copy(update={"name": "NVIDIA GeForce RTX 9090", "pci_device_id": "ffff"})
    (card,) = cards_of(inventory.model_copy(update={"gpus": (gpu,)}))[0]
    assert card.compute_capability == (8, 6)
    assert 0 < card.bandwidth_gb_s < 500


@pytest.mark.parametrize("word", ["uuid", "pci_bus_id", "index"])
def test_cards_are_named_by_uuid_bus_id_or_index(word: str) -> None:
    inventory = INVENTORIES["3x3090"]
    cards, left = cards_of(inventory, [str(getattr(inventory.gpus[2], word))])
    assert [card.index for card in cards] == [2]
    assert {one.code for one in left} == {"not-selected"}


def test_workloads_have_an_acceptance_for_every_drafter_that_recipes_use() -> None:
    for workload in ("chat", "batch", "long", "edit"):
        assert set(data()["acceptance"][workload]) == {"mtp", "dflash"}

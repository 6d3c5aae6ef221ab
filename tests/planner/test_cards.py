"""Inventory and device table joined: what the planner knows of a card."""

from __future__ import annotations

import pytest

from qwenlab.host_inventory import PcieLink
from qwenlab.planner.cards import WSL2_SHARE_GIB, cards_of
from qwenlab.planner.throughput.calibration import data
from tests.planner.machines import MACHINES, inventories

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

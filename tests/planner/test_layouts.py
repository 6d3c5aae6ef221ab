"""Which cards may form an engine, and in which order."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwenlab.planner.cards import cards_of
from qwenlab.planner.layouts import Footprint, Interconnect, footprints, levelled, link_of, sorted_cards, splits
from qwenlab.planner.shape import Card
from qwenlab.planner.throughput import Link
from tests.planner.machines import inventories

INVENTORIES = inventories()


def cards(machine: str) -> tuple[Card, ...]:
    inventory = INVENTORIES[machine]
    return sorted_cards(cards_of(inventory)[0], inventory.pairs)


@pytest.mark.parametrize(
    ("machine", "forms"),
    [
        ("1x3090", {(1, 1)}),
        ("2x3090-pcie", {(1, 1), (2, 1), (1, 2)}),
        ("3x3090", {(1, 1), (2, 1), (1, 2), (1, 3)}),
        ("4x3090-pcie", {(1, 1), (2, 1), (1, 2), (1, 3), (4, 1), (1, 4), (2, 2)}),
        ("8x3090-four-bridges", {(1, 1), (2, 1), (4, 1), (8, 1), (1, 2)}),
    ],
)
def test_forms_are_those_that_heads_and_layers_allow(machine: str, forms: set[tuple[int, int]]) -> None:
    """Tensor parallel sizes are 1, 2, 4, 8; three cards never share a layer."""
    assert {(footprint.tp, footprint.pp) for footprint in footprints(cards(machine))} == forms


def test_every_footprint_has_each_card_once_and_as_many_as_its_form_needs() -> None:
    for machine in INVENTORIES:
        for footprint in footprints(cards(machine)):
            assert len(set(footprint.members)) == footprint.tp * footprint.pp


def test_a_pipeline_puts_the_slower_card_first_so_that_head_and_drafter_lie_on_the_faster() -> None:
    pair = cards("5090+4070tisuper")
    pipelines = [footprint for footprint in footprints(pair) if footprint.pp == 2]
    assert [pair[member].name for member in pipelines[0].members] == [
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "NVIDIA GeForce RTX 5090",
    ]


def test_bridged_cards_are_neighbours_whatever_their_slots() -> None:
    order = [card.index for card in cards("8x3090-four-bridges")]
    assert {frozenset(order[i : i + 2]) for i in range(0, 8, 2)} == {frozenset((i, i + 4)) for i in range(4)}


@pytest.mark.parametrize(
    ("used_gib", "levelled_gib"),
    [
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
        ((0.0, 0.004, 0.015), (0.015, 0.015, 0.015)),  # what idle cards of a real host differ by
        ((0.0, 1.3, 0.01), (0.01, 1.3, 0.01)),  # a desktop stays one
        ((0.3, 0.0, 0.2), (0.3, 0.0, 0.3)),
    ],
)
def test_small_differences_in_free_memory_are_taken_out_downwards(
    used_gib: tuple[float, ...], levelled_gib: tuple[float, ...]
) -> None:
    three = tuple(replace(card, in_use_gib=used) for card, used in zip(cards("3x3090"), used_gib, strict=True))
    result = levelled(three)
    assert [card.in_use_gib for card in result] == list(levelled_gib)
    assert [card.uuid for card in result] == [card.uuid for card in three]


def test_cards_of_other_kinds_are_not_levelled() -> None:
    mixed = cards("2x3090+2x3060")
    assert levelled(mixed) == mixed


def test_order_and_footprints_ignore_memory_and_peer_access() -> None:
    """What makes more memory or peer access unable to take a candidate away."""
    inventory = INVENTORIES["2x3090+2x3060"]
    before = sorted_cards(cards_of(inventory)[0], inventory.pairs)
    richer = [replace(card, memory_gib=card.memory_gib * (1 + card.index)) for card in before]
    joined = [pair.model_copy(update={"peer_read": True, "peer_write": True}) for pair in inventory.pairs]
    after = sorted_cards(richer, joined)
    assert [card.index for card in after] == [card.index for card in before]
    assert list(footprints(after)) == list(footprints(before))


@pytest.mark.parametrize(
    ("machine", "link"),
    [
        ("2x3090-nvlink", Link.NVLINK),
        ("2x3090-peer", Link.PEER),
        ("2x3090-pcie", Link.HOST),
        ("2x4090-wsl2", Link.HOST_WSL2),
        ("8xh100", Link.NVSWITCH),
        ("2xh200", Link.NVSWITCH),  # eighteen lanes between two cards are as good
        ("4x3090-two-bridges", Link.HOST),  # the worst of the six pairs counts
    ],
)
def test_the_slowest_pair_decides_what_an_all_reduce_crosses(machine: str, link: Link) -> None:
    inventory = INVENTORIES[machine]
    assert link_of(cards(machine), Interconnect(inventory.pairs, wsl2=inventory.wsl2)) is link


def test_a_failed_live_test_outranks_the_driver() -> None:
    inventory = INVENTORIES["2x3090-peer"]
    failed = [pair.model_copy(update={"measured_peer_ok": False}) for pair in inventory.pairs]
    assert link_of(cards("2x3090-peer"), Interconnect(failed)) is Link.HOST


@pytest.mark.parametrize(("stages", "grid", "count"), [(1, 1, 1), (2, 1, 57), (2, 8, 7), (3, 8, 21), (4, 8, 35)])
def test_splits_cover_all_layers_with_at_least_four_a_stage(stages: int, grid: int, count: int) -> None:
    found = list(splits(stages, 64, grid))
    assert len(found) == len(set(found)) == count
    assert all(sum(split) == 64 and min(split) >= 4 and len(split) == stages for split in found)


def test_masks_tell_footprints_apart_by_cards_not_by_order() -> None:
    assert Footprint((2, 0), 1, 2).mask == Footprint((0, 2), 2).mask == 0b101

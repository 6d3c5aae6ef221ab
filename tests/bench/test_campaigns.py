"""Whole campaigns on cards: what shares a wave fits the cards, and every figure is predicted before it is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.gpu import arms as arms_module
from bench.gpu.campaigns import CAMPAIGNS, ROOM_GIB
from bench.gpu.wave import stays, waves
from qwenlab.host_inventory import HostInventory
from qwenlab.inventory_source import read_inventory

RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "h200x2-gathered"


@pytest.fixture(scope="module")
def idle() -> HostInventory:
    """Two H200 that nobody uses."""
    inventory = read_inventory(str(RECORDED))
    return inventory.model_copy(
        update={"gpus": tuple(gpu.model_copy(update={"memory_used_mib": 4}) for gpu in inventory.gpus)}
    )


@pytest.fixture(autouse=True)
def nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arms_module, "write", lambda *_: None)


@pytest.mark.parametrize("campaign", CAMPAIGNS)
def test_a_campaign_fits_the_cards_and_names_every_arm_once(campaign: str, idle: HostInventory, tmp_path: Path) -> None:
    arms = CAMPAIGNS[campaign](idle, tmp_path)
    assert sum(len(wave) for wave in waves(arms, ROOM_GIB)) == len(arms)
    names = [arm["name"] for arm in arms]
    assert len(set(names)) == len(names)


def test_what_is_planned_is_predicted_and_leaves_the_others_of_its_wave_their_memory(
    idle: HostInventory, tmp_path: Path
) -> None:
    for name in ("one-card", "batch-drafts", "two-cards"):
        for arm in filter(stays, CAMPAIGNS[name](idle, tmp_path)):
            if arm["group"] != "plan":
                continue
            assert arm["predicted"]["kv_tokens"] > 0
            assert arm["predicted"]["speed"]["decode_tok_s"] > 0
            for rank in arm["predicted"]["memory"]:
                assert rank["total"] - rank["in_use"] - rank["margin"] <= arm["need_gib"] + 1


def test_without_peer_access_batch_is_two_replicas_and_two_shards_are_measured_against_them(
    idle: HostInventory, tmp_path: Path
) -> None:
    last = [arm for arm in CAMPAIGNS["two-cards"](idle, tmp_path) if arm["wave"] == 2 and stays(arm)]
    assert [arm["args"].get("data-parallel-size", 1) for arm in last] == [2, 1]
    assert [arm["args"].get("tensor-parallel-size", 1) for arm in last] == [1, 2]
    for arm in last:
        assert arm["env"]["NCCL_P2P_DISABLE"] == "1"
        assert "c64" in {burst["label"] for burst in arm["bursts"]}

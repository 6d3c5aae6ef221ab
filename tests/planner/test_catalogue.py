"""The catalogue and geometry tables: sizes agree with what is published, every reference resolves."""

from __future__ import annotations

import re

import pytest

from qwenlab.planner.catalogue import DEFAULT_MODEL, CheckpointSpec, checkpoints, drafter_checkpoints
from qwenlab.planner.geometry import drafters, models

ALL = list(checkpoints().values())


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.key)
def test_sizes_agree_with_the_published_ones(spec: CheckpointSpec) -> None:
    if spec.online is None:
        assert spec.total_gib == pytest.approx(spec.published_gib, rel=0.021)
    else:  # the files are those of the checkpoint as it is stored
        (stored,) = (other for other in ALL if other.repo == spec.repo and other.online is None)
        assert (spec.revision, spec.published_gib) == (stored.revision, stored.published_gib)
        assert spec.total_gib < stored.total_gib


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.key)
def test_an_entry_is_complete(spec: CheckpointSpec) -> None:
    assert spec.model in models()
    assert set(spec.drafters) <= set(drafter_checkpoints())
    assert all(spec.model in drafter_checkpoints()[key].geometry.for_models for key in spec.drafters)
    assert spec.revision is None or re.fullmatch("[0-9a-f]{40}", spec.revision)
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", spec.repo)
    assert spec.quality
    assert spec.source
    assert ("quantized-embedding" in spec.patches) == (spec.bits.embedding < 16)


def test_every_asked_format_of_the_default_model_is_there() -> None:
    formats = {spec.format for spec in ALL if spec.model == DEFAULT_MODEL}
    assert formats >= {"int4-autoround", "w8a16", "fp8", "nvfp4", "bf16"}


def test_the_official_checkpoints_are_pinned() -> None:
    assert all(spec.revision for spec in ALL if spec.repo.startswith("Qwen/"))
    assert all(drafter.revision for drafter in drafter_checkpoints().values())


def test_a_second_model_is_only_data() -> None:
    second = models()["qwen3.6-27b"]
    assert {spec.model for spec in ALL} == {DEFAULT_MODEL, "qwen3.6-27b"}
    assert (second.attention_layers, second.gdn_layers) == (16, 48)


def test_geometry_counts_the_published_parameters() -> None:
    model = models()[DEFAULT_MODEL]
    count = model.parameters()
    body = (
        model.layers * count["mlp"]
        + model.attention_layers * count["attention"]
        + model.gdn_layers * (count["gdn"] + count["gdn_small"])
    )
    assert (body + count["embedding"] + count["lm_head"]) / 1e9 == pytest.approx(26.96, abs=0.1)
    assert count["embedding"] * 2 == 2_542_796_800
    assert count["mtp"] * 2 / 1e6 == pytest.approx(850, abs=2)
    assert [layer for layer in range(8) if model.is_full_attention(layer)] == [3, 7]


def test_drafters_match_their_published_geometry() -> None:
    drafter = drafters()["dflash2"]
    assert (drafter.layers, drafter.kv_heads, drafter.head_dim, drafter.sliding_window) == (5, 8, 128, 2048)
    assert drafter.target_layers == (5, 19, 33, 47, 61)

"""The memory model reproduces what others logged: pools to the token, refusals to the hundredth of a GiB."""

from __future__ import annotations

import pytest

from qwenlab.planner.memory import GIB
from qwenlab.planner.memory.published import Published, published


def name(row: Published) -> str:
    return f"{row.source}: {row.config.kv_dtype} {row.config.method} {row.pool or row.tokens or row.gib}"


@pytest.mark.parametrize("row", published("exact"), ids=name)
def test_published_pool_is_reproduced_to_the_token(row: Published) -> None:
    assert row.ours().pool_tokens == row.pool
    assert row.ours().refusal is None


@pytest.mark.parametrize("row", [row for row in published("exact") if row.gib], ids=name)
def test_reproduced_pool_fills_the_published_gib_to_within_one_block(row: Published) -> None:
    assert row.gib is not None
    block = max(layout.block_bytes for layout in row.ours().layouts) / GIB
    rounding = 0.0051 if row.gib < 20 else 0.011
    assert -rounding <= row.gib - max(row.ours().bytes_per_stage) / GIB < block + rounding


@pytest.mark.parametrize("row", published("refusals"), ids=name)
def test_published_refusal_is_reproduced(row: Published) -> None:
    assert row.gib is not None
    digits = len(str(row.gib).split(".")[1])
    assert round(row.gib_per_request(), digits) == row.gib


@pytest.mark.parametrize("row", published("longest"), ids=name)
def test_published_longest_context_is_reproduced(row: Published) -> None:
    assert row.longest() == row.tokens


@pytest.mark.parametrize("row", published("misses"), ids=name)
def test_a_miss_is_listed_only_while_it_is_one(row: Published) -> None:
    assert row.why
    assert row.ours().pool_tokens != row.pool


def test_enough_rows_hold_the_model() -> None:
    pinned = [row for row in published("exact") if row.pinned]
    assert len(published("exact")) >= 130
    assert len(pinned) >= 18
    assert len([row for row in published("exact") if not row.inferred]) >= 100
    assert {row.config.kv_dtype for row in published("exact")} >= {
        "bfloat16",
        "fp8",
        "int8_per_token_head",
        "int4_per_token_head",
        "kvarn_k4v2_g128",
    }
    assert {row.config.tp for row in published("exact")} == {1, 2, 4}
    assert any(len(row.config.partition) == 2 for row in published("exact"))

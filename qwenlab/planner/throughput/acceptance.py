"""How many tokens a speculative step yields: 1 + p + p^2 + ... + p^k, with p by text and drafter."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from qwenlab.planner.throughput.calibration import data

TRAINED_BLOCK = {"dflash": 7, "dflash1": 5}


@cache
def _table() -> Mapping[str, Mapping[str, float]]:
    table: dict[str, dict[str, float]] = data()["acceptance"]
    return table


def tokens_per_step(text: str, draft: str | None, draft_tokens: int) -> float:
    """Mean tokens per verify step, the free one included.

    Args:
        text: a row of `acceptance` in data/throughput.yaml (kind of text, or a published benchmark's prompts).
        draft: None, "mtp", "dflash" or "dflash1"; a block drafter yields nothing beyond its trained block.
        draft_tokens: drafted per step.

    Raises:
        KeyError: no such text or drafter.
    """
    if draft is None or draft_tokens == 0:
        return 1.0
    p = _table()[text][draft]
    useful = min(draft_tokens, TRAINED_BLOCK.get(draft, draft_tokens))
    return float((1 - p ** (useful + 1)) / (1 - p))

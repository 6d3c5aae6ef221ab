"""When a layout's greedy tokens count as those of one card, and when a difference counts as rounding."""

from __future__ import annotations

from typing import Any

import pytest

from bench.gpu.equality import judge
from bench.gpu.layouts import TEACHER

DECODED = [-0.50, -0.40, -0.30]
FORCED = [-0.51, -0.40, -0.30]  # one card moves by 0.01 nats between a prompt and its decoding: 0.04 are allowed


def arm(name: str, tokens: list[int], forced: list[float], lead: float = 0.03) -> dict[str, Any]:
    """A result of one prompt with three tokens, each ahead by `lead` nats."""
    answer = {"tokens": tokens, "logprobs": DECODED, "margins": [lead] * 3}
    return {"name": name, "greedy": [answer], "forced": [forced]}


@pytest.mark.parametrize(
    ("tokens", "forced", "lead", "word"),
    [
        ([7, 8, 9], FORCED, 0.03, "equal"),
        ([7, 8, 1], [-0.51, -0.42, -0.33], 0.03, "rounding"),
        ([7, 8, 1], [-0.51, -0.42, -0.33], 0.90, "different"),
        ([7, 1, 1], [-0.51, -0.40, -2.30], 0.03, "different"),
    ],
    ids=["same tokens", "near tie, small moves", "the reference was sure", "probabilities move"],
)
def test_a_layout_is_judged_by_the_lead_at_its_first_difference_and_by_what_its_probabilities_move(
    tokens: list[int], forced: list[float], lead: float, word: str
) -> None:
    reference = arm(TEACHER, [7, 8, 9], FORCED, lead)
    verdicts = judge([reference, arm("small-tp2-plain", tokens, forced)])
    assert [one.word for one in verdicts] == ["equal", word]


def test_a_report_without_the_reference_is_refused() -> None:
    with pytest.raises(ValueError, match=f"{TEACHER} has no answers"):
        judge([arm("small-tp2-plain", [7, 8, 9], FORCED)])

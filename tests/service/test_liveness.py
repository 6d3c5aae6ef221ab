"""The watch over a serving engine: what it tells systemd's watchdog, and what it leaves unsaid."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.remote.liveness import Watch, token_count

METRICS = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
vllm:prompt_tokens_total{engine="0",model_name="qwen"} 10.0
vllm:generation_tokens_total{engine="0",model_name="qwen"} 1.5e+03
vllm:generation_tokens_created{engine="0",model_name="qwen"} 1.7e+09
"""


def completion(text: str) -> dict[str, Any]:
    """An engine's answer."""
    return {"choices": [{"text": text}]}


def looks(answers: list[dict[str, Any] | None], metrics: list[str] | None = None) -> list[list[str]]:
    """What systemd hears at each look, until the engine is given up."""
    pages = list(metrics or [])
    replies = list(answers)
    heard: list[str] = []
    watch = Watch(
        model="qwen",
        ask=lambda question: replies.pop(0),
        metrics=lambda: pages.pop(0) if pages else "",
        notify=heard.append,
        alive=lambda: bool(replies),
    )
    told = []
    while watch.alive():
        heard.clear()
        going_on = watch.look()
        told.append(list(heard))
        if not going_on:
            break
    return told


def test_an_answer_feeds_the_watchdog() -> None:
    assert looks([completion(" Paris"), completion(" Paris")]) == [["WATCHDOG=1"]] * 2


def test_an_engine_that_generates_nothing_is_left_to_the_watchdog() -> None:
    silent = looks([None, None, completion("")])
    assert [one for told in silent for one in told if one.startswith("WATCHDOG")] == []
    assert "not generating" in silent[0][0]


def test_an_engine_that_is_busy_with_others_is_not_killed() -> None:
    pages = [f"vllm:generation_tokens_total {count}" for count in (100, 200, 200)]
    told = looks([None, None, None], pages)
    assert [one[0].startswith("WATCHDOG=1") for one in told] == [False, True, False]


def test_nonsense_once_is_forgiven_and_twice_in_a_row_is_not() -> None:
    nonsense = completion("!!!!!!!!!!!!")
    assert looks([nonsense, completion("Paris"), nonsense, completion("Paris")]) == [["WATCHDOG=1"]] * 4
    assert looks([nonsense, nonsense, completion("never asked")]) == [
        ["WATCHDOG=1"],
        ["STATUS=degenerate output: restarting\nWATCHDOG=trigger"],
    ]


@pytest.mark.parametrize("text", ["Paris!!!", "w17 w17 w17 w17", "Wow!!!!!!!!!!"])
def test_odd_words_are_not_nonsense(text: str) -> None:
    assert looks([completion(text)] * 3) == [["WATCHDOG=1"]] * 3


def test_the_counters_are_read_from_the_metrics_page() -> None:
    assert token_count(METRICS) == 1510
    assert token_count("") == -1

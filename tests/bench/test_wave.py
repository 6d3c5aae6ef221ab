"""Engines of one wave start together, are measured in turn once all are up, and end together."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.gpu import run
from bench.gpu.wave import waves

STAND_IN = Path(__file__).with_name("stand_in_engine.py")
BURST = {"label": "c2", "concurrency": 2, "prompt_tokens": 4, "output_tokens": 20}


def arm(name: str, cards: list[int], gib: float = 40, boot_s: float = 0, **more: Any) -> dict[str, Any]:
    """One arm of wave 1 that stays on its cards."""
    return {
        "name": name,
        "group": "plan",
        "what": "serve",
        "cards": len(cards),
        "named_cards": cards,
        "need_gib": gib,
        "model": "m",
        "args": {},
        "env": {"STAND_IN_BOOT_S": str(boot_s)},
        "wave": 1,
        "least_s": 0,
        "bursts": [BURST],
        **more,
    }


def pool(name: str, gib: float = 40) -> dict[str, Any]:
    """One arm of wave 1 that only starts."""
    return {**arm(name, [0], gib), "what": "pool"}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run arms on stand-ins; the events that these noted, and the report by name."""
    log = tmp_path / "events"
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {STAND_IN} "$@"\n')
    python.chmod(0o755)

    def of(arms: list[dict[str, Any]]) -> tuple[list[tuple[str, str]], dict[str, Any]]:
        (tmp_path / "arms.json").write_text(json.dumps(arms))
        words = ["run", "--arms", str(tmp_path / "arms.json"), "--out", str(tmp_path / "out"), "--cards", "2"]
        monkeypatch.setattr(sys, "argv", [*words, "--release", f"stock={python}", "--deadline-s", "60"])
        run.main()
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        report = json.loads((tmp_path / "out" / "report.json").read_text())
        return [(name, word) for _, name, word in sorted(lines)], {one["name"]: one for one in report}

    return of


def test_nothing_is_measured_before_the_last_engine_is_up_and_no_two_on_one_card_at_once(measured: Any) -> None:
    events, report = measured([arm("first", [0]), arm("late", [0], boot_s=2), arm("over-both", [0, 1])])
    assert {name: one["state"] for name, one in report.items()} == dict.fromkeys(("first", "late", "over-both"), "ok")
    assert {word for _, word in events[:3]} == {"up"}
    busy = [name for name, word in events[3:]]
    assert busy == sorted(busy, key=["first", "late", "over-both"].index)


def test_engines_on_different_cards_are_measured_at_the_same_time(measured: Any) -> None:
    long = BURST | {"output_tokens": 400}
    events, _ = measured([arm("left", [0], bursts=[long]), arm("right", [1], bursts=[long])])
    first_answered = next(place for place, (_, word) in enumerate(events) if word == "answered")
    assert {name for name, word in events[:first_answered] if word == "asked"} == {"left", "right"}


def test_an_engine_that_does_not_start_keeps_nobody_waiting(measured: Any) -> None:
    _, report = measured([arm("fails", [0]), arm("starts", [0]), pool("passes")])
    assert {name: one["state"] for name, one in report.items()} == {"fails": "failed", "starts": "ok", "passes": "ok"}
    assert "told to fail" in report["fails"]["tail"]


def test_a_profiled_engine_tells_its_kernels_by_their_share(measured: Any) -> None:
    _, report = measured([arm("profiled", [0], profile=BURST | {"output_tokens": 50})])
    (trace,) = report["profiled"]["profile"]
    assert trace["kernels"] == [["gemm", 2, 0.02], ["norm", 1, 0.01]]


def test_waves_run_one_after_another(measured: Any) -> None:
    events, _ = measured([arm("second", [0]) | {"wave": 2}, arm("first", [0], boot_s=1)])
    assert [name for name, word in events if word == "up"] == ["first", "second"]


@pytest.mark.parametrize(
    ("arms", "words"),
    [
        ([arm("a", [0], 70), arm("b", [0, 1], 70)], "wave 1 needs 140 GiB of card 0, which has 134"),
        ([arm("a", [1], 100), pool("p", 40)], "wave 1 needs 140 GiB of card 1, which has 134"),
    ],
    ids=["engines that stay", "one that passes beside one that stays"],
)
def test_a_wave_that_would_wait_for_itself_is_refused(arms: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        waves(arms, 134)

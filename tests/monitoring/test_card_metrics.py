"""The cards' figures as text for the node exporter."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwenlab.remote import card_metrics

ROW = "GPU-a, NVIDIA GeForce RTX 3090, 61, 301.52, 350.00, 23456, 24576, 97"


def figures(text: str) -> dict[str, float]:
    """Series to value."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_every_figure_has_its_unit() -> None:
    labels = '{card="GPU-a",name="NVIDIA GeForce RTX 3090"}'
    assert figures(card_metrics.page([ROW], 1700000000.4)) == {
        f"qwen_card_temperature_celsius{labels}": 61,
        f"qwen_card_power_watts{labels}": 301.52,
        f"qwen_card_power_limit_watts{labels}": 350,
        f"qwen_card_memory_used_bytes{labels}": 23456 * 2**20,
        f"qwen_card_memory_bytes{labels}": 24576 * 2**20,
        f"qwen_card_utilization_ratio{labels}": 0.97,
        "qwen_cards_read_seconds": 1700000000,
    }


@pytest.mark.parametrize("row", ["GPU-b, L4, 40, [N/A], [N/A], 1, 2, 3", "GPU-b, L4, 40, [Not Supported], , 1, 2, 3"])
def test_what_a_card_does_not_have_is_left_out(row: str) -> None:
    made = figures(card_metrics.page([ROW, row], 0))
    assert {series.split("{")[0] for series in made if "GPU-b" in series} == {
        "qwen_card_temperature_celsius",
        "qwen_card_memory_used_bytes",
        "qwen_card_memory_bytes",
        "qwen_card_utilization_ratio",
    }
    assert sum("GPU-a" in series for series in made) == 6


def test_lines_that_are_no_rows_are_passed_over() -> None:
    assert list(figures(card_metrics.page(["No devices were found", ""], 7))) == ["qwen_cards_read_seconds"]


def test_the_file_is_replaced_whole_and_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "qwen_cards.prom"
    for text in ("first\n", "second\n"):
        card_metrics.write(text, file)
    assert file.read_text() == "second\n"
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [file]


def test_without_nvidia_smi_there_are_no_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert card_metrics.read() == []

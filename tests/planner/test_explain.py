"""What a person reads: the explanation, the short form and the page."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser

import pytest
from rich.console import Console

from qwenlab.host_inventory import HostInventory
from qwenlab.planner import plan
from qwenlab.planner.brief import brief
from qwenlab.planner.explain import as_text
from qwenlab.planner.html import page
from qwenlab.planner.memory_bar import cells, segments
from qwenlab.planner.plan import HostPlan, RankMemory
from qwenlab.planner.topology import form, seats, speed_words
from qwenlab.settings import Settings
from tests.planner.machines import inventories

PIPELINE = Settings(pipeline_parallel=2, tensor_parallel=1, data_parallel=1)
VOID = {"meta", "line", "rect", "br", "link", "img"}


@cache
def planned(machine: str, settings: Settings | None = None) -> tuple[HostPlan, HostInventory]:
    inventory = inventories()[machine]
    return plan(inventory, settings or Settings()), inventory


def unequal_pair() -> tuple[HostPlan, HostInventory]:
    inventory = inventories()["5090+4070tisuper"]
    return plan(inventory, PIPELINE), inventory


def squeezed(text: str) -> str:
    """Text without the frame and the line breaks."""
    return re.sub(r"[\s│─]+", " ", text)


class Page(HTMLParser):
    """Collects what a browser would choke on, and what it would show."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.faults: list[str] = []
        self.addresses: list[str] = []
        self.widths: list[float] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        given = dict(attrs)
        self.addresses += [value for name in ("src", "href") if (value := given.get(name))]
        if match := re.match(r"width: ([\d.]+)%", given.get("style") or ""):
            self.widths.append(float(match[1]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_explanation_names_every_card_setting_reason_and_loser() -> None:
    made, inventory = unequal_pair()
    text = squeezed(as_text(made, inventory, width=200))
    engine = made.engines[0]
    for gpu in inventory.gpus:
        assert f"[{gpu.index}] {gpu.name}" in text
    for reason in engine.reasons:
        assert reason.rule in text
        assert all(name.partition(".")[0] in text for name in reason.sets)
    for loser in engine.rejected:
        assert squeezed(loser.layout) in text
    assert "stage 0: layers 0-" in text
    assert f"-{63}" in text


def test_the_layout_is_drawn_in_rank_order() -> None:
    engine = unequal_pair()[0].engines[0]
    assert engine.partition is not None
    first, second = engine.partition
    assert form(engine) == f"PP=2 (layers {first},{second})"
    assert [seat.role for seat in seats(engine)] == [
        f"stage 0: layers 0-{first - 1}",
        f"stage 1: layers {first}-{first + second - 1}",
    ]


def test_replicas_and_shards_are_told_apart() -> None:
    engine = planned("4xpro6000")[0].engines[0].model_copy(update={"tp": 2, "dp": 2})
    roles = [seat.role for seat in seats(engine)]
    assert roles == ["copy 1, shard 1 of 2", "copy 1, shard 2 of 2", "copy 2, shard 1 of 2", "copy 2, shard 2 of 2"]


@pytest.mark.parametrize("machine", ["1x3090", "2x3090-nvlink", "5090+4070tisuper", "8xh100", "16-mixed"])
def test_memory_bars_are_exact(machine: str) -> None:
    for engine in planned(machine)[0].engines:
        for rank in engine.memory:
            assert sum(count for _, count in cells(rank, 48)) == 48
            assert sum(segment.share for segment in segments(rank)) == pytest.approx(1, abs=0.002)


def test_a_sliver_gets_no_cell_and_a_third_gets_a_third() -> None:
    memory = RankMemory(gpu="a", weights=8, kv=8, workspace=0.01, graphs=0, in_use=0, margin=0, total=24)
    assert {part.field: count for part, count in cells(memory, 48)} == {"weights": 16, "kv": 16, "free": 16}


def test_a_refused_host_says_why_and_what_would_fit() -> None:
    made, inventory = planned("laptop-8gb")
    text = squeezed(as_text(made, inventory, width=400))
    assert made.status == "refused"
    for refusal in made.refusals:
        assert f"[{refusal.code}]" in text
        assert squeezed(refusal.text) in text


def test_markup_in_a_name_is_text() -> None:
    made, inventory = planned("1x3090")
    odd = inventory.model_copy(update={"hostname": "[red]rack[/red] <script>alert(1)</script>"})
    assert "[red]rack[/red]" in as_text(made, odd)
    assert "<script>" not in page(made, odd)
    assert "<script>alert(1)</script>" in Page(page(made, odd)).text


@pytest.mark.parametrize("machine", ["1x3090", "2x3090-nvlink", "5090+4070tisuper", "8xh100", "16-mixed", "laptop-8gb"])
def test_the_page_is_whole_and_loads_nothing(machine: str) -> None:
    made, inventory = planned(machine)
    text = page(made, inventory)
    shown = Page(text)
    assert shown.faults == []
    assert shown.open == []
    assert shown.addresses == []
    assert "@import" not in text
    assert "url(" not in text
    for gpu in inventory.gpus:
        assert f"[{gpu.index}]" in shown.text
    for engine in made.engines:
        assert all(reason.text in shown.text for reason in engine.reasons)
        assert all(loser.why in shown.text for loser in engine.rejected)
    for refusal in made.refusals:
        assert refusal.text in shown.text


def test_the_bars_of_the_page_add_up() -> None:
    made, inventory = planned("2x3090-nvlink")
    ranks = sum(len(engine.memory) for engine in made.engines)
    assert sum(Page(page(made, inventory)).widths) == pytest.approx(100 * ranks, abs=0.5 * ranks)


def shown_briefly(machine: str, settings: Settings | None = None, width: int = 160) -> list[str]:
    made, inventory = planned(machine, settings)
    screen = Console(width=width, color_system=None, force_terminal=False)
    with screen.capture() as captured:
        brief(made, inventory, screen)
    return captured.get().splitlines()


@pytest.mark.parametrize("machine", ["1x3090", "2x3090-nvlink", "5090+4070tisuper", "8xh100", "laptop-8gb"])
def test_the_short_form_fits_a_screen_and_says_what_runs(machine: str) -> None:
    made, inventory = planned(machine)
    lines = shown_briefly(machine)
    text = " ".join(lines)
    assert len(lines) <= 40
    for engine in made.engines:
        assert engine.checkpoint.repo in text
        assert f"{engine.max_model_len:,} tokens, {engine.max_num_seqs} seats" in text
        assert engine.kv is not None
        assert f"{engine.kv.tokens:,} tokens" in text
        assert speed_words(engine) in text
    for gpu in inventory.usable_gpus:
        assert made.status == "refused" or f"[{gpu.index}] {gpu.name}" in text
    assert all(squeezed(refusal.text) in squeezed(text) for refusal in made.refusals)
    assert ("--explain" in lines[-1]) is bool(made.engines)

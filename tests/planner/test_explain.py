"""What a person reads: the explanation, the page, and the command with its exit codes."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from qwenlab import cli, plan_cli
from qwenlab.facts.findings import error
from qwenlab.host_inventory import Diagnosis, HostInventory
from qwenlab.patches.manifest import load, releases
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
ROOT = Path(__file__).resolve().parents[2]


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


def test_the_short_form_is_the_default_and_the_long_one_is_asked_for(
    inventory_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan_cli.main(["--from", str(inventory_file)]) == 0
    short = capsys.readouterr().out
    assert plan_cli.main(["--from", str(inventory_file), "--explain"]) == 0
    long = capsys.readouterr().out
    assert "why each setting" not in short
    assert "why each setting" in long


def test_no_argument_name_is_cut_in_a_pipe(inventory_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = plan(inventories()["2x3090-nvlink"], Settings())
    assert plan_cli.main(["--from", str(inventory_file), "--explain"]) == 0
    printed = capsys.readouterr().out
    names = {name for engine in made.engines for reason in engine.reasons for name in reason.sets}
    assert {name for name in names if name not in printed} == set()
    assert {name for engine in made.engines for name in engine.patches if name not in printed} == set()


def test_the_list_of_patches_names_each_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert cli.main(["patches", "list"]) == 0
    printed = capsys.readouterr().out
    ids = {patch.id for vllm in releases() for patch in load(vllm).patches}
    assert {name for name in ids if name not in printed} == set()


@pytest.fixture
def inventory_file(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.json"
    path.write_text(inventories()["2x3090-nvlink"].model_dump_json())
    return path


def test_json_is_the_contract(inventory_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan_cli.main(["--from", str(inventory_file), "--workload", "long", "--context", "150000", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert {"schema", "status", "workload", "engines", "idle", "refusals", "warnings"} <= made.keys()
    assert (made["schema"], made["status"], made["workload"]) == (1, "planned", "long")
    engine = made["engines"][0]
    assert {
        *("name", "port", "gpus", "tp", "pp", "dp", "partition", "checkpoint", "drafter", "speculation"),
        *("kv_cache_dtype", "attention_backend", "max_model_len", "max_num_seqs", "args", "env", "patches"),
        *("memory", "kv", "predicted", "reasons", "rejected"),
    } <= engine.keys()
    assert engine["max_model_len"] >= 150_000
    assert {"rule", "text", "source", "evidence"} <= engine["reasons"][0].keys()
    assert {"weights", "kv", "workspace", "graphs", "in_use", "margin", "total"} <= engine["memory"][0].keys()


def test_refused_is_exit_code_2_with_machine_readable_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "laptop.json"
    path.write_text(inventories()["laptop-8gb"].model_dump_json())
    assert plan_cli.main(["--from", str(path), "--json"]) == 2
    made = json.loads(capsys.readouterr().out)
    assert made["status"] == "refused"
    assert made["engines"] == []
    assert all(refusal["code"] and refusal["text"] for refusal in made["refusals"])


def test_an_inventory_comes_from_stdin_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(inventories()["1x3090"].model_dump_json()))
    assert plan_cli.main(["--from", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engines"][0]["tp"] == 1


CPU_ENGINE = ["engine=cpu", "cpu_checkpoint=lab/tiny", f"cpu_revision={'0' * 40}"]


@pytest.mark.parametrize("form", [[], ["--explain"]])
def test_the_cpu_engines_plan_speaks_of_no_card_and_leaves_no_gap(
    form: list[str], inventory_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [word for pair in CPU_ENGINE for word in ("--set", pair)]
    assert plan_cli.main(["--from", str(inventory_file), *arguments, *form]) == 0
    said = capsys.readouterr().out
    assert "on the processor" in said
    assert "bf16 (the model's)" in said
    assert "None" not in said
    assert "one card" not in said


@pytest.mark.parametrize("diagnoses", [(), (error("no_gpu", "No NVIDIA card was found on this host."),)])
def test_a_host_without_cards_is_told_how_to_try_it(
    diagnoses: tuple[Diagnosis, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bare.json"
    path.write_text(HostInventory(hostname="bare", diagnoses=diagnoses).model_dump_json())
    assert plan_cli.main(["--from", str(path)]) == 2
    said = squeezed(capsys.readouterr().out)
    assert "NVIDIA card was found on this host (to try qwenlab without one: qwen_engine = 'cpu', see README)" in said


def test_any_setting_can_be_given(inventory_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--from", str(inventory_file), "--set", "qwen_engine_args={max-num-seqs: 3}", "--set", "port=9000"]
    assert plan_cli.main([*arguments, "--json"]) == 0
    engine = json.loads(capsys.readouterr().out)["engines"][0]
    assert (engine["args"]["max-num-seqs"], engine["port"]) == (3, 9000)


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["--from", "{file}", "--set", "qwen_tensor_paralel=2"], 64, "did you mean qwen_tensor_parallel"),
        (["--from", "{file}", "--context", "5"], 64, "qwen_context"),
        (["--from", "{file}.missing"], 66, "No such file"),
        (["--from", __file__], 66, "not an inventory"),
    ],
)
def test_faults_are_told_in_one_line(
    inventory_file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, word: str
) -> None:
    given = [argument.replace("{file}", str(inventory_file)) for argument in arguments]
    assert plan_cli.main([*given, "--json"]) == code
    said = capsys.readouterr().err
    assert word in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "arguments", [[], ["--from", "x", "--workload", "talk"], ["--from", "x", "--json", "--explain"]]
)
def test_a_wrong_call_is_not_mistaken_for_a_refusal(arguments: list[str]) -> None:
    assert cli.main(["plan", *arguments]) == 64


def test_html_is_written_to_the_file(inventory_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "plan.html"
    assert plan_cli.main(["--from", str(inventory_file), "--html", str(target)]) == 0
    assert target.read_text().startswith("<!doctype html>")
    assert capsys.readouterr().out == ""


def test_planning_needs_neither_pyinfra_nor_vllm(inventory_file: Path) -> None:
    program = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('pyinfra', 'vllm', 'torch', 'pynvml'):\n"
        "            raise ImportError('planning must not import ' + name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from qwenlab.cli import main\n"
        f"sys.exit(main(['plan', '--from', {str(inventory_file)!r}, '--explain']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "RTX 3090" in done.stdout

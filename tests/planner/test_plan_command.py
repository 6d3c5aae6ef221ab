"""`python -m qwenlab plan`: what it takes, the forms it answers in, and its exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from qwenlab import cli, plan_cli
from qwenlab.facts.findings import error
from qwenlab.host_inventory import Diagnosis, HostInventory
from qwenlab.patches.manifest import load, releases
from qwenlab.planner import plan
from qwenlab.settings import Settings
from tests.planner.machines import inventories
from tests.planner.test_explain import squeezed

ROOT = Path(__file__).resolve().parents[2]


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

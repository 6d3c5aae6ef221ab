"""What `--from` takes, the same for plan, render and probe, and how it refuses what is no host."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from qwenlab.cli import main
from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.recording import load
from qwenlab.inventory_source import read_inventory
from tests.facts.hosts import H200_PAIR, corpus_path


@pytest.fixture
def forms(tmp_path: Path) -> dict[str, Path]:
    inventory = build_inventory(load(H200_PAIR))
    bare, document = tmp_path / "bare.json", tmp_path / "document.json"
    bare.write_text(inventory.model_dump_json())
    document.write_text(json.dumps({"summary": {}, "diagnoses": [], "inventory": inventory.model_dump(mode="json")}))
    return {"bare": bare, "document": document, "directory": H200_PAIR, "published": corpus_path("46")}


@pytest.mark.parametrize("form", ["bare", "document", "directory", "published"])
def test_every_form_is_read_by_every_command(
    form: str, forms: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(forms[form])
    assert main(["probe", "--from", source, "--json"]) == 0
    probed = json.loads(capsys.readouterr().out)["inventory"]
    assert read_inventory(source).model_dump(mode="json") == probed
    assert main(["plan", "--from", source, "--json"]) == 0
    engines = json.loads(capsys.readouterr().out)["engines"]
    assert {gpu for engine in engines for gpu in engine["gpus"]} <= {gpu["uuid"] for gpu in probed["gpus"]}
    assert main(["render", "--from", source, "--out", str(tmp_path / "host")]) == 0
    assert (tmp_path / "host").is_dir()


@pytest.mark.parametrize("form", ["bare", "document", "published"])
def test_standard_input_takes_every_file(
    form: str, forms: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(forms[form].read_text()))
    piped = read_inventory("-")
    assert piped == read_inventory(str(forms[form]))


@pytest.mark.parametrize("command", ["plan", "probe", "render"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{}", "it holds none of"),
        ("", "it is empty; a mapping"),
        (" \n", "it is empty"),
        ('{"hostname": "a", "gpus": [{"index": 0,\n"name": "NVID', "breaks off in line 2: the file was cut"),
        ('{"hostname": "a",\n "gpus": [{"index": 0}', "breaks off in line 2: the file was cut"),
        ('{"hostname": "a"}{"hostname": "b"}', "damaged in line 1, column 18"),
        ('{"hostname": "a",\n "gpus": [1 2]}', "damaged in line 2"),
        ('{"hostname": "a", "gpus": [],}', "damaged in line 1"),
        ('{"schema_version": 2, "gpus": []}', "schema_version is 2, and this qwenlab reads 1"),
        ("[1]", "a JSON object"),
        ("a: [", "flow node"),
        ("title: a page\n", "it holds none of"),
        ('{"schema_version": 1}', "no list of cards"),
        ('{"inventory": {"gpus": [{}]}}', "gpus.0."),
        ('{"hostname": "a", "gpus": [{"index": 0}, {"index": 0}]}', "two cards have index 0"),
        (
            '{"hostname": "a", "gpus": [{"index": 0, "uuid": "GPU-1"}, {"index": 1, "uuid": "GPU-1"}]}',
            "two cards have uuid GPU-1",
        ),
        ('{"hostname": "\\ud800", "gpus": []}', "half a character"),
        ('{"hostname": "a", "gpus": [{"index": 0, "memory_total_mib": -5}]}', "gpus.0.memory_total_mib is -5"),
        ('{"hostname": "a", "gpus": [{"index": 0, "pcie": {"width_max": -1}}]}', "gpus.0.pcie.width_max is -1"),
        ('{"hostname": "a", "gpus": [], "ram_total_gib": 1e999}', "ram_total_gib is inf"),
        ('{"hostname": "a", "gpus": [], "ram_total_gib": NaN}', "ram_total_gib is nan"),
        pytest.param("[" * 100_000 + "]" * 100_000, "nested too deep", id="deep list"),
        pytest.param('{"gpus":' * 100_000, "nested too deep", id="deep object"),
        pytest.param("a: " + "[" * 3000 + "]" * 3000, "nested too deep", id="deep YAML"),
        pytest.param("- " * 20_000 + "x", "nested too deep", id="deep YAML blocks"),
        pytest.param("1" * 5000, "Exceeds the limit", id="long number"),
        pytest.param("a: " + "1" * 5000, "Exceeds the limit", id="long number in YAML"),
        ("a: 2001-02-30", "day is out of range"),
        (None, "No such file or directory"),
    ],
)
def test_what_is_no_host_is_told_in_one_line_that_names_it_once(
    command: str, content: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "given"
    if content is not None:
        source.write_text(content)
    out = ["--out", str(tmp_path / "out")] if command == "render" else []
    assert main([command, "--from", str(source), *out]) == 66
    printed, said = capsys.readouterr()
    assert printed == ""
    assert words in said
    assert said.count("\n") == 1
    assert said.count(str(source)) == 1
    assert ": :" not in said
    assert "::" not in said


def test_a_directory_of_other_texts_is_no_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("buy cards\n")
    assert main(["probe", "--from", str(tmp_path)]) == 66
    said = capsys.readouterr().err
    assert "holds no capture" in said
    assert said.count(str(tmp_path)) == 1


def test_an_empty_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--from", ""]) == 66
    assert capsys.readouterr().err == "qwenlab plan: --from names no file\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_what_windows_writes_is_read(encoding: str, tmp_path: Path) -> None:
    """PowerShell's `>` writes UTF-16 with a mark and CR LF."""
    (tmp_path / "x.json").write_bytes('{"hostname": "größe",\r\n "gpus": []}'.encode(encoding))
    assert read_inventory(str(tmp_path / "x.json")).hostname == "größe"


def test_bytes_that_are_no_text_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_bytes(b"\x89PNG\x00\xff")
    assert main(["plan", "--from", str(tmp_path / "x")]) == 66
    assert "not UTF-8 text" in capsys.readouterr().err


def test_a_card_on_no_numa_node_is_nothing_impossible(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"hostname": "a", "gpus": [{"index": 0, "numa_node": -1}]}')
    assert read_inventory(str(tmp_path / "x.json")).gpus[0].numa_node == -1

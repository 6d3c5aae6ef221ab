"""What every command does with a wrong call, a reader that has gone, Ctrl-C and a file that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qwenlab import cli
from tests.facts.hosts import H200_PAIR, corpus_path

PLAN = ["plan", "--from", str(H200_PAIR)]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_wrong_call_is_64_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--no-such-option"]) == 64
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_is_success_everywhere(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("{tmp}/absent/p.html", "No such file or directory"),
        ("/dev/full", "No space left on device"),
        ("{tmp}", "Is a directory"),
        ("{tmp}/file/p.html", "Not a directory"),
    ],
)
def test_a_page_that_cannot_be_written_is_one_line(
    target: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    path = target.format(tmp=tmp_path)
    assert cli.main([*PLAN, "--html", path]) == 73
    assert capsys.readouterr().err == f"qwenlab plan: cannot write {path}: {reason}\n"


@pytest.mark.parametrize("command", [["render", "--out"], ["probe", "--record"]])
def test_a_folder_that_is_a_file_is_one_line(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert cli.main([*command, str(tmp_path / "file"), "--from", str(H200_PAIR)]) == 73
    said = capsys.readouterr().err
    assert said.startswith(f"qwenlab {command[0]}: cannot write {tmp_path / 'file'}")
    assert said.count("\n") == 1


def test_a_full_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "qwenlab", "settings"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (run.returncode, run.stderr) == (73, "qwenlab settings: No space left on device\n")


@pytest.mark.parametrize("arguments", [["--help"], ["settings"], ["plan", "--from", str(H200_PAIR), "--explain"]])
def test_a_reader_that_has_gone_is_no_fault(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [sys.executable, "-m", "qwenlab", *arguments], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (run.returncode, run.stderr) == (141, "")


def test_an_interrupt_is_one_line_and_130() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WAITING],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "reading\n"
        run.send_signal(signal.SIGINT)
        _, said = run.communicate()
    assert (run.returncode, said.strip()) == (130, "qwenlab plan: interrupted")


_WAITING = """
import io, sys
from qwenlab import cli, plan_cli
class Slow(io.StringIO):
    def read(self, *size):
        print("reading", flush=True)
        return sys.__stdin__.read()
sys.stdin = Slow()
sys.exit(cli.main(["plan", "--from", "-"]))
"""


def test_an_ascii_terminal_gets_replaced_characters() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "qwenlab", "plan", "--from", str(H200_PAIR), "--explain"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (run.returncode, run.stderr) == (0, b"")
    assert run.stdout.isascii()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "context"], "--set context: '=' is missing"),
        (["--set", "=3"], "--set =3: the key is missing"),
        (["--set", "engine_args={a: ["], "the value is no YAML"),
        (
            ["--set", "engine_args=" + "[" * 3000 + "]" * 3000],
            "--set engine_args: the value cannot be read (it is nested",
        ),
        (["--set", f"port={'1' * 5000}"], "--set port: the value cannot be read (Exceeds the limit"),
        (["--set", "port=2001-02-30"], "day is out of range"),
    ],
)
@pytest.mark.parametrize("command", [["plan"], ["render", "--out", "{tmp}"]])
def test_a_faulty_setting_is_named(
    command: list[str], arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = [word.format(tmp=tmp_path) for word in command]
    assert cli.main([*call, "--from", str(H200_PAIR), *arguments]) == 64
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "call",
    [
        ["memory", "--kv-bytes", "1e400"],
        ["memory", "--kv-bytes", "1" * 5000],
        ["probe", "--record", ""],
        ["plan", "--from", "x", "--html", ""],
        ["bundle", "--engine", "cpu", "--out", ""],
        ["bundle", "--engine", "cpu", "--out", "x", "--glibc", "-5"],
        ["bundle", "--engine", "cpu", "--out", "x", "--glibc", "2.36"],
        ["bundle", "--split", "x", "--out", "y", "--piece-mib", "0"],
    ],
    ids=lambda call: " ".join(call)[:60],
)
def test_a_value_that_cannot_be_meant_is_a_wrong_call(
    call: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(call) == 64
    assert f"argument {call[-2]}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["render", "--from", str(corpus_path("46")), "--out", ""]) == 64
    assert "--out" in capsys.readouterr().err


def test_a_lock_without_a_pin_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lock", "9.9"]) == 64
    said = capsys.readouterr().err
    assert "no pin is called 9.9" in said
    assert "cuda-0.33.0.txt" in said

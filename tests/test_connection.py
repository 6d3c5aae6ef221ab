"""What a person is told about a host that pyinfra cannot log in to."""

import subprocess
import sys
from pathlib import Path

import pytest

from qwenlab.connection import advice, prepare_ssh


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("[rack1] Could not resolve hostname (name not known)", "its name is unknown"),
        ("\x1b[1m[rack1]\x1b[0m \x1b[31mAuthentication error (username=a): x\x1b[0m", "ssh-copy-id"),
        ("[rack1] Could not connect ([Errno 111] refused)", "does not answer"),
        ("[rack1] Could not connect ([Errno 2] No such file or directory: '/x/known_hosts')", "mkdir -m 700 ~/.ssh"),
        ("[rack1] SSH error (Error reading SSH protocol banner)", "broke off"),
        ("[rack1] SSH error (No authentication methods available)", "ssh_key"),
    ],
)
def test_connection_errors_are_followed_by_what_to_do(message: str, words: str) -> None:
    text = advice(message)
    assert text is not None
    assert text.startswith("[rack1] what to do: ")
    assert words in text


@pytest.mark.parametrize("message", ["[rack1] Error: executed 0 commands", "No hosts remaining!", "[rack1] refused: x"])
def test_other_errors_stand_for_themselves(message: str) -> None:
    assert advice(message) is None


def test_a_machine_that_never_used_ssh_gets_its_list_of_known_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / ".ssh/known_hosts"
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare_ssh()
    assert (known.parent.stat().st_mode & 0o777, known.stat().st_mode & 0o777) == (0o700, 0o600)
    known.write_text("rack1 ssh-ed25519 AAAA\n")
    prepare_ssh()
    assert known.read_text() == "rack1 ssh-ed25519 AAAA\n"
    monkeypatch.setenv("HOME", str(known / "no-folder"))
    prepare_ssh()


ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("inventory", "arguments", "words"),
    [
        ("lab = []\n", [], "the inventory names no host"),
        ("lab = ['@local']\n", ["--limit", "rack1"], "leave no host of the inventory, which has @local"),
        ("lab = ['@local']\n", ["--exclude", "lab"], "leave no host of the inventory"),
    ],
)
def test_a_run_without_a_host_is_no_success(inventory: str, arguments: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "lab.py").write_text(inventory)
    pyinfra = Path(sys.executable).with_name("pyinfra")
    command = [str(pyinfra), str(tmp_path / "lab.py"), "plays/plan.py", "-y", *arguments]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert words in run.stderr
    assert "Traceback" not in run.stderr

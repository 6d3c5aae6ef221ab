"""The command line: what a person meets first."""

import subprocess
import sys


def test_help_lists_every_command() -> None:
    from qwenlab.cli import COMMANDS

    run = subprocess.run([sys.executable, "-m", "qwenlab", "--help"], capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert all(name in run.stdout for name in COMMANDS)


def test_unknown_command_is_refused_with_the_list() -> None:
    run = subprocess.run([sys.executable, "-m", "qwenlab", "plam"], capture_output=True, text=True, check=False)
    assert run.returncode == 64
    assert "no command 'plam'" in run.stderr

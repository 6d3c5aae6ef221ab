"""`pyinfra INVENTORY plays/plan.py`: every host's plan, nothing executed, an unfit host fails alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from qwenlab.facts.recording import load

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "tests" / "data" / "recorded" / "h200x2-nvswitch"


def gathered(captures: dict[str, str]) -> str:
    """What the gathering program prints for these captures."""
    parts = [f"@@@qwenlab {name} 0\n{text.rstrip()}\n" for name, text in captures.items()]
    return "".join(parts) + "@@@qwenlab end"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    answers = {"served": gathered(load(RECORDED).captures), "bare": gathered({"pci": ""})}
    path = tmp_path / "inventory.py"
    lines = [
        f'    ("@fake/{name}", {{"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": '
        f'{{"id -u": "0", "": {answer!r}}}}}),\n'
        for name, answer in answers.items()
    ]
    path.write_text("hosts = [\n" + "".join(lines) + "]\n")
    return path


def run(inventory: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("pyinfra")), "-y", str(inventory), str(ROOT / "plays" / "plan.py")],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def test_each_host_is_explained_and_an_unfit_one_fails_alone(inventory: Path, tmp_path: Path) -> None:
    done = run(inventory, tmp_path)
    said = done.stdout + done.stderr
    served = [line for line in said.splitlines() if "@fake/served" in line]
    assert any("NVIDIA H200" in line for line in served), said
    assert any("engine1, port 8000" in line for line in served)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert re.search(r"@fake/bare\] +refused: no-gpu", plain)
    assert not re.search(r"@fake/served\] +refused:", plain)
    assert done.returncode == 1

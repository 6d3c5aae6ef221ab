"""`pyinfra INVENTORY plays/plan.py`: every host's plan, nothing executed, an unfit host fails alone."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from qwenlab.facts.recording import load
from qwenlab.host_inventory import HostInventory
from qwenlab.operations import planning
from qwenlab.settings import Settings

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


def test_a_planner_that_fails_refuses_its_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no bandwidth")

    monkeypatch.setattr(planning, "plan", fail)
    (refusal,) = planning.safe_plan(HostInventory(), Settings()).refusals
    assert refusal.code == "planner-failed"
    assert "ZeroDivisionError: no bandwidth" in refusal.text


def test_an_impossible_split_refuses_and_nothing_is_raised(inventory: Path, tmp_path: Path) -> None:
    data = inventory.read_text().replace('{"fake_delay": 0,', '{"qwen_layer_split": [1, 2], "fake_delay": 0,', 1)
    inventory.write_text(data)
    done = run(inventory, tmp_path)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    assert re.search(r"@fake/served\] +refused: override-impossible: qwen_layer_split", plain), plain
    assert re.search(r"@fake/bare\] +refused: no-gpu", plain)
    assert "Traceback" not in plain

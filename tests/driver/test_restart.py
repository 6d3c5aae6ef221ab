"""A compiler that moves restarts the engines: what they are made of includes the drop-ins of their unit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from qwenlab.driver import toolkit
from qwenlab.programs import programs
from qwenlab.render import UNITS
from tests.driver.states import wishes


@pytest.fixture
def fingerprint(tmp_path: Path) -> Path:
    """The program as a host has it, looking below `tmp_path`; one engine named cpu lies there."""
    program = tmp_path / "fingerprint"
    settings = wishes(release_directory=str(tmp_path / "opt/qwen"))
    text = programs(settings)["/usr/local/lib/qwen/fingerprint"].content
    for place in ("/etc/", "/usr/local/lib/", "/run/"):
        text = text.replace(place, f"{tmp_path}{place}")
    program.write_text(text)
    for name in ("etc/qwen/engines/cpu.yaml", "etc/qwen/engines/cpu.env", "etc/systemd/system/qwen-engine@.service"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{name}\n")
    for name in ("engine.py", "liveness.py"):
        (tmp_path / "usr/local/lib/qwen").mkdir(parents=True, exist_ok=True)
        (tmp_path / "usr/local/lib/qwen" / name).write_text("pass\n")
    (tmp_path / "opt/qwen").mkdir(parents=True)
    (tmp_path / "opt/qwen/current").symlink_to("releases/1")
    return program


def say(program: Path, what: str) -> str:
    """What it prints about engine cpu."""
    return subprocess.run(["sh", str(program), what, "cpu"], check=True, capture_output=True, text=True).stdout.strip()


def test_an_engine_is_stale_when_its_compiler_comes_from_elsewhere(fingerprint: Path, tmp_path: Path) -> None:
    drop_in = Path(f"{tmp_path}{toolkit.DROP_IN}")
    assert toolkit.DROP_IN.startswith(f"{UNITS}/")
    drop_in.parent.mkdir()
    homes = [toolkit.home(wishes(cuda_from=source), "3.13") for source in ("pip", "apt")]
    drop_in.write_text(toolkit.drop_in(str(homes[0]), wishes()))
    say(fingerprint, "record")
    assert say(fingerprint, "now") == say(fingerprint, "of")

    drop_in.write_text(toolkit.drop_in(str(homes[1]), wishes()))
    moved = say(fingerprint, "now")
    drop_in.unlink()
    gone = say(fingerprint, "now")
    assert len({say(fingerprint, "of"), moved, gone}) == 3


def test_a_drop_in_of_this_engine_alone_counts_too(fingerprint: Path, tmp_path: Path) -> None:
    say(fingerprint, "record")
    own = tmp_path / "etc/systemd/system/qwen-engine@cpu.service.d"
    own.mkdir()
    (own / "override.conf").write_text("[Service]\nEnvironment=CUDA_VISIBLE_DEVICES=1\n")
    assert say(fingerprint, "now") != say(fingerprint, "of")

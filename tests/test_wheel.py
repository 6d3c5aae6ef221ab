"""The wheel that is built from this repository carries all that its commands read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.facts.hosts import H200_PAIR

ROOT = Path(__file__).resolve().parents[1]


CALLS = [
    ["plan", "--from", str(H200_PAIR)],
    ["render", "--from", str(H200_PAIR), "--out", "host"],
    ["patches", "list"],
]
PROGRAM = "import json, sys; from qwenlab import cli; sys.exit(max(map(cli.main, json.loads(sys.argv[1]))))"


def test_its_commands_work_far_from_the_clone(tmp_path: Path) -> None:
    uv = shutil.which("uv")
    assert uv is not None, "uv is what this repository is built with"
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", str(tmp_path), str(ROOT)], check=True, timeout=300)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")  # as an installer does
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, json.dumps(CALLS)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Qwen/Qwen3.8-27B" in done.stdout
    assert (tmp_path / "host/etc/systemd/system/qwen-engine@.service").is_file()

"""What a person sees of an engine that did not start: its first errors, then its last lines, without the noise."""

from __future__ import annotations

import subprocess
from pathlib import Path

from qwenlab.operations.service import LOG_LINES, _or_tell

JOURNAL = """\
(APIServer pid=1) INFO 11-29 22:18:30 [core.py:1] loading
(EngineCore pid=2) ERROR 11-29 22:18:31 [core.py:9] RuntimeError: the first cause
{noise}
Failed to start qwen-engine@cpu.service
"""


def test_the_first_error_is_seen_however_much_comes_after_it(tmp_path: Path) -> None:
    noise = [
        "nanobind: leaked 64 types!",
        ' - leaked type "a"',
        " - ... skipped remainder",
        "unit: Killing process 7 (x)",
    ]
    lines = [*noise, *(f"line {number}" for number in range(2 * LOG_LINES))]
    (tmp_path / "journal").write_text(JOURNAL.format(noise="\n".join(lines)))
    for name, text in {"systemctl": "echo state of $4", "journalctl": f"cat {tmp_path / 'journal'}"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = f"false {_or_tell('qwen-engine@cpu.service', 'echo back; ')}"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    told = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    shown = told.stderr.splitlines()
    assert told.returncode == 1
    assert shown[:3] == ["state of qwen-engine@cpu.service", JOURNAL.splitlines()[1], "..."]
    assert shown[3].startswith("line ")
    assert shown[-3:] == [JOURNAL.splitlines()[-1], "the engine did not start: the lines above say why", "back"]
    assert not any("leaked" in line or "Killing" in line or " INFO " in line for line in shown)
    assert len(shown) == LOG_LINES + 5

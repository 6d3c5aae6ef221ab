"""Sixteen people at once while the service is restarted: nobody hangs, and memory stays what it was."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from bench import soak
from tests.lab.deploying import API_KEY
from tests.lab.serving import served_host

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]


def test_every_request_completes_or_fails_cleanly_and_none_hangs(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(API_KEY)
    with served_host(tmp_path, qwen_cpu_seats=16) as served:
        ssh = shlex.join(served.host.ssh_command())
        memory = "ps -u qwen -o rss= | awk '{sum += $1} END {print sum}'"
        code = soak.main(
            [
                *("--url", f"http://{served.host.address}:8000", "--key-file", str(tmp_path / "key")),
                *("--streams", "16", "--seconds", "60", "--patience", "90", "--growth", "15"),
                *("--restart", f"{ssh} systemctl restart qwen", "--memory", f"{ssh} {shlex.quote(memory)}"),
                *("--json", str(tmp_path / "soak.json")),
            ]
        )
        found = json.loads((tmp_path / "soak.json").read_text())
        assert code == 0, found["failures"]
        assert found["ends"]["completed"] > 0
        assert found["ends"]["refused"] + found["ends"]["cut"] > 0
        assert found["completed_after_restart"] > 0
        assert min(found["memory_mib"]["before"]) > 100

"""Sixteen people at once for ten minutes while the service is restarted: nobody hangs, and memory stays what it was."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from bench import soak
from tests.lab.deploying import API_KEY
from tests.lab.serving import QUICK, served_host

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

# What an engine keeps is bounded, and these bounds are reached before memory is judged. It gets its pool from Linux
# page by page, as blocks are first used: 256 blocks hold twice what sixteen people ask. And it keeps a kernel for every
# number of tokens that was ever in a batch, up to 1024 in each of oneDNN's caches.
POOL = {"num-gpu-blocks-override": 256}
KERNELS = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128", "LRU_CACHE_CAPACITY": "128"}
MEMORY = (
    'ps -u qwen -o rss=,args= | awk \'{name = "server"} /VLLM::EngineCore/ {name = "core"} '
    '/VLLM::Worker/ {name = "worker"} {kib[name] += $1} END {for (name in kib) print name, kib[name]}\''
)


def test_every_request_completes_or_fails_cleanly_none_hangs_and_memory_is_flat(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(API_KEY)
    settings = {**QUICK, "qwen_cpu_seats": 16, "qwen_engine_args": POOL, "qwen_engine_env": KERNELS}
    with served_host(tmp_path, **settings) as served:
        ssh = shlex.join(served.host.ssh_command())
        code = soak.main(
            [
                *("--url", f"http://{served.host.address}:8000", "--key-file", str(tmp_path / "key")),
                *("--streams", "16", "--seconds", "600", "--patience", "120", "--growth", "3"),
                *("--restart", f"{ssh} systemctl restart qwen", "--memory", f"{ssh} {shlex.quote(MEMORY)}"),
                *("--json", str(tmp_path / "soak.json")),
            ]
        )
        found = json.loads((tmp_path / "soak.json").read_text())
        assert code == 0, found["failures"]
        assert found["ends"]["completed"] > 16
        assert found["ends"]["refused"] + found["ends"]["cut"] > 0
        assert found["completed_after_restart"] > 0
        for memory in found["memory_mib"].values():
            assert set(memory) == {"all", "server", "core", "worker"}
            assert min(memory["all"]) > 100

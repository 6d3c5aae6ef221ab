"""Start one engine from a planned configuration, wait until it answers, read its log, end it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from qwenlab.rehearsal.engine_log import EngineLog, parse

# NVLink multicast can take a shared host's GPUs out of service for everybody; every engine here runs without it.
NO_MULTICAST = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
    "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
}


@dataclass(frozen=True)
class Start:
    """One engine to start. `args` are vLLM's options by their long name, `env` beside the machine's own."""

    name: str
    model: str
    args: dict[str, Any]
    env: dict[str, str]
    port: int


class Server:
    """A running `vllm serve`, in a process group of its own."""

    def __init__(self, python: Path, start: Start, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.start, self.log_path = start, folder / f"{start.name}.log"
        config = folder / f"{start.name}.yaml"
        config.write_text(yaml.safe_dump({**start.args, "port": start.port}, sort_keys=True))
        command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", start.model, "--config", str(config)]
        self.began = time.monotonic()
        with self.log_path.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **start.env, **NO_MULTICAST},
                start_new_session=True,
            )

    def wait_ready(self, limit_s: float) -> float | None:
        """Seconds from start to the first healthy answer; None when it died, ran out of time or used multicast."""
        while time.monotonic() - self.began < limit_s:
            if self._process.poll() is not None or self.log().multicast:
                return None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.start.port}/health", timeout=5):
                    return round(time.monotonic() - self.began, 1)
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        return None

    def wait_for_pool(self, limit_s: float) -> bool:
        """Wait only until the KV pool's size is printed (or the engine died)."""
        while time.monotonic() - self.began < limit_s:
            if self.log().kv_tokens is not None:
                return True
            if self._process.poll() is not None:
                return self.log().kv_tokens is not None
            time.sleep(0.5)
        return False

    def log(self) -> EngineLog:
        """What the engine printed so far."""
        return parse(self.log_path.read_text(errors="replace"))

    def text(self) -> str:
        """All that the engine printed so far."""
        return self.log_path.read_text(errors="replace")

    def tail(self, lines: int = 25) -> str:
        """The last lines of the log, for a failure's report."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """End the whole process group and wait for it."""
        for word in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, word)
            except ProcessLookupError:
                break
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()

"""A small checkpoint on a local hub, and the fetcher as it runs on a host: a process that reads a job."""

from __future__ import annotations

import io
import json
import os
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from qwenlab.remote import fetch_checkpoint
from qwenlab.remote.checkpoint import manifest
from tests.lab.servers.hub import Hub

REPO = "lab/tiny"
ROOT = Path(__file__).resolve().parents[2]
QUANTIZED = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4}}}}


def repository(directory: Path, *, shards: int = 3, shard_bytes: int = 200_000, seed: int = 0) -> Path:
    """Files of every kind: small ones outside LFS, shards in LFS, and some that no engine reads."""
    source = random.Random(seed)
    directory.mkdir(parents=True)
    config = {"architectures": ["Qwen3_5ForConditionalGeneration"], "quantization_config": QUANTIZED, "seed": seed}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE"}}))
    (directory / "README.md").write_text("# nothing that an engine reads\n")
    (directory / "pytorch_model.bin").write_bytes(b"old" * 100)
    (directory / "templates").mkdir()
    (directory / "templates" / "chat.jinja").write_text("{{ messages }}")
    for number in range(shards):
        (directory / f"model-{number + 1:05}-of-{shards:05}.safetensors").write_bytes(source.randbytes(shard_bytes))
    return directory


WANTED = {"config.json", "tokenizer.json", "templates/chat.jinja"}


@dataclass
class Host:
    """A host's model directory and what its deploys ask of the fetcher."""

    root: Path
    hub: Hub
    commit: str
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> Path:
        return self.root / "models"

    def directory(self, revision: str | None = None, repo: str = REPO) -> Path:
        return self.models / repo / (revision or self.commit)

    def job(self, **more: Any) -> Path:
        """A job file as a deploy writes it."""
        self.models.mkdir(parents=True, exist_ok=True)
        revision, repo = more.get("revision", self.commit), more.get("repo", REPO)
        given = {
            "repo": repo,
            "revision": revision,
            "directory": str(self.directory(revision, repo)),
            "models": str(self.models),
            "source": "hub",
            "status": str(self.root / "status.json"),
            "endpoint": self.hub.endpoint,
            "backoff_s": 0.01,
            "environment": {"HF_HOME": str(self.root / "hf")},
            **self.more,
            **more,
        }
        path = self.root / f"job-{os.urandom(4).hex()}.json"
        path.write_text(json.dumps(given))
        return path

    def start(self, **more: Any) -> subprocess.Popen[str]:
        """The fetcher, running."""
        command = [sys.executable, "-B", str(ROOT / "qwenlab/remote/fetch_checkpoint.py"), str(self.job(**more))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_DISABLE_TELEMETRY": "1"}
        environment.pop("HF_TOKEN", None)
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def fetch(self, **more: Any) -> tuple[int, str]:
        """Exit code and what is said of a failure; within this process, which spares an interpreter's start."""
        errors = io.StringIO()
        with mock.patch.dict(os.environ), redirect_stderr(errors):
            code = fetch_checkpoint.main([str(self.job(**more))])
        return code, errors.getvalue()

    def killed_ten_times(self, most: int, **more: Any) -> int:
        """Kill ten fetches, each after up to `most` more bytes; how many of them were not done before."""
        chance = random.Random(38)
        kills = 0
        for _ in range(10):
            done = sum(request.sent for request in self.hub.requests)
            with self.start(**more) as process:
                wanted = done + chance.randrange(1, most)
                while process.poll() is None and sum(one.sent for one in self.hub.requests) < wanted:
                    select.select([], [], [], 0.005)
                if process.poll() is None:
                    process.kill()
                    kills += 1
            assert not self.whole()
        return kills

    def status(self) -> dict[str, Any]:
        """The status file."""
        loaded: dict[str, Any] = json.loads((self.root / "status.json").read_text())
        return loaded

    def whole(self, revision: str | None = None, repo: str = REPO) -> bool:
        """Whether there is a manifest and every byte is as it says."""
        directory = self.directory(revision, repo)
        known = manifest.read(directory)
        return known is not None and not list(manifest.wrong_files(directory, known.files, digests=True))

    def files(self, revision: str | None = None) -> set[str]:
        """Names in the checkpoint's directory."""
        directory = self.directory(revision)
        return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}


@contextmanager
def host(root: Path, **repository_options: Any) -> Iterator[Host]:
    """A hub with one checkpoint, and a host that has nothing yet."""
    with Hub().running() as hub:
        commit = hub.add(REPO, repository(root / "source", **repository_options))
        yield Host(root, hub, commit)

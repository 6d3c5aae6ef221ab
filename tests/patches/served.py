"""Serves the tiny checkpoints with a vLLM tree on the CPU and asks it; used by the served tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patches.trees import Tree
from tests.ports import free_port

V2_ON_CPU = Path(__file__).parent / "v2_on_cpu"
KEY = "key-of-the-served-tests"
START_SECONDS = 420


@dataclass(frozen=True)
class Answer:
    """Greedy tokens of one request.

    Attributes:
        tokens: ids.
        gaps: per token, log-probability of the best minus the second best.
        cached: prompt tokens that came from the prefix cache.
    """

    tokens: tuple[int, ...]
    gaps: tuple[float, ...]
    cached: int


@dataclass(frozen=True)
class Departure:
    """Token `at` (from 1) was another than expected, which was ahead of all others by `gap` nats."""

    at: int
    token: int
    expected: int
    gap: float


@dataclass(frozen=True)
class Server:
    """A running engine."""

    address: str
    log: Path

    def request(self, path: str, body: Any = None, *, key: str | None = KEY, method: str | None = None) -> Any:
        """The parsed JSON (or text) of an answer; raises urllib's HTTPError."""
        request = urllib.request.Request(
            self.address + path, data=None if body is None else json.dumps(body).encode(), method=method
        )
        request.add_header("Content-Type", "application/json")
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        with urllib.request.urlopen(request, timeout=300) as answer:
            text = answer.read().decode()
        return json.loads(text) if text[:1] in ("{", "[") else text

    def status(self, path: str, *, key: str | None = None, method: str = "GET") -> int:
        """HTTP status of a request with an empty body."""
        try:
            self.request(path, {} if method in ("POST", "PUT", "PATCH") else None, key=key, method=method)
        except urllib.error.HTTPError as error:
            return error.code
        return 200

    def ask(self, prompt: Sequence[int], tokens: int) -> Answer:
        """Continue `prompt` greedily by exactly `tokens` tokens."""
        answer = self.request(
            "/v1/completions",
            {
                "model": "q",
                "prompt": list(prompt),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
                "logprobs": 2,
            },
        )
        choice = answer["choices"][0]
        best = [sorted(top.values(), reverse=True) for top in choice["logprobs"]["top_logprobs"]]
        details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
        return Answer(
            tuple(choice["token_ids"]),
            tuple(top[0] - top[1] if len(top) > 1 else 0.0 for top in best),
            int(details.get("cached_tokens") or 0),
        )

    def forced(self, tokens: Sequence[int], count: int = 20) -> list[dict[int, float]]:
        """Log-probabilities by token of the `count` best at each place of `tokens` but the first, in nats."""
        answer = self.request(
            "/v1/completions",
            {"model": "q", "prompt": list(tokens), "max_tokens": 1, "temperature": 0, "prompt_logprobs": count},
        )
        places = answer["choices"][0]["prompt_logprobs"][1:]
        return [{int(token): float(entry["logprob"]) for token, entry in place.items()} for place in places]

    def follow(self, prompt: Sequence[int], reference: Answer) -> list[Departure]:
        """Where greedy decoding leaves `reference`; there the reference's token is given and it goes on from it."""
        at, found = 0, []
        while at < len(reference.tokens):
            tokens = self.ask([*prompt, *reference.tokens[:at]], len(reference.tokens) - at).tokens
            for token, expected in zip(tokens, reference.tokens[at:], strict=True):
                at += 1
                if token != expected:
                    found.append(Departure(at, token, expected, reference.gaps[at - 1]))
                    break
        return found

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        text = self.request("/metrics")
        lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def _start(tree: Tree, log: Path, arguments: Sequence[str], extra: dict[str, str]) -> subprocess.Popen[bytes]:
    environ = tree.environ(
        {
            "VLLM_USE_V2_MODEL_RUNNER": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1",  # there is no compiler behind the stand-in for Triton
            # three to five processes an engine; compiling every module anew takes more than half of each one's start
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(tree.folder.with_name(f"{tree.folder.name}-bytecode")),
            **extra,
        },
        first=[V2_ON_CPU],
    )
    with log.open("wb") as output:
        return subprocess.Popen(
            [str(tree.python), "-m", "vllm.entrypoints.cli.main", "serve", *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environ,
            cwd=log.parent,
            start_new_session=True,
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(30)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    process.wait()


@contextmanager
def serve(
    tree: Tree,
    checkpoints: Path,
    folder: Path,
    *arguments: str,
    nodes: Sequence[Sequence[str]] = ((),),
    extra: dict[str, str] | None = None,
) -> Iterator[Server]:
    """Serve until the block is left. `nodes`: arguments of each vLLM node of the engine, the first answers.

    Raises:
        RuntimeError: the engine did not come up; the message is the tail of its log.
    """
    port = free_port()
    common = [
        *(str(checkpoints / "target"), "--served-model-name", "q", "--max-model-len", "1024"),
        *("--max-num-seqs", "2", "--dtype", "bfloat16", "--language-model-only", "--enforce-eager"),
        *("--async-scheduling", "--host", "127.0.0.1", "--enable-prompt-tokens-details", "--max-num-batched-tokens"),
        *("512", *arguments),
    ]
    processes = []
    logs = [folder / f"node{index}.log" for index in range(len(nodes))]
    secret = {"VLLM_API_KEY": KEY, **(extra or {})}
    try:
        for index, (log, node) in enumerate(zip(logs, nodes, strict=True)):
            ports = ["--port", str(port if index == 0 else free_port())]
            processes.append(_start(tree, log, [*common, *ports, *node], secret))
        server = Server(f"http://127.0.0.1:{port}", logs[0])
        _wait(server, processes, logs)
        yield server
    finally:
        for process in processes:
            _stop(process)


def _wait(server: Server, processes: Sequence[subprocess.Popen[bytes]], logs: Sequence[Path]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            break
        try:
            server.request("/health")
        except OSError:
            # polled, because vLLM tells nobody when it is ready
            processes[0].poll()
            _pause(processes[0])
        else:
            return
    # long: a worker's own error comes before what its death does to all others
    tails = "\n".join(log.read_text(errors="replace")[-40_000:] for log in logs)
    raise RuntimeError(f"vLLM did not come up:\n{tails}")


def _pause(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(1)
    except subprocess.TimeoutExpired:
        return

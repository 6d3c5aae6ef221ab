#!/usr/bin/env python3
"""Answers as `vllm serve` does, as far as the bench asks: health, metrics, streamed completions, chat, the profiler.

Started as a release's Python: `stand_in_engine.py -m vllm.entrypoints.cli.main serve MODEL --config FILE`. Every burst
is noted in the file that STAND_IN_LOG names, so that a test can tell when who was measured.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

CONFIG: dict[str, Any] = yaml.safe_load(Path(sys.argv[sys.argv.index("--config") + 1]).read_text())
NAME = Path(sys.argv[sys.argv.index("--config") + 1]).stem
KERNELS = [{"cat": "kernel", "name": name, "ts": at, "dur": 10.0} for at, name in enumerate(("gemm", "gemm", "norm"))]


def note(word: str) -> None:
    with Path(os.environ["STAND_IN_LOG"]).open("a") as log:
        log.write(json.dumps([time.monotonic(), NAME, word]) + "\n")


async def completions(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    note("asked")
    response = web.StreamResponse()
    await response.prepare(request)
    for count in range(1, body["max_tokens"] + 1):
        event = {"choices": [{"token_ids": [7]}], "usage": {"completion_tokens": count}}
        await response.write(f"data: {json.dumps(event)}\n\n".encode())
        await asyncio.sleep(0.001)
    note("answered")
    return response


async def profile(request: web.Request) -> web.Response:
    if request.path == "/stop_profile":
        folder = Path(CONFIG["profiler-config"]["torch_profiler_dir"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": KERNELS}).encode()))
    return web.Response()


async def healthy(_request: web.Request) -> web.Response:
    return web.Response(text="")


async def chat(_request: web.Request) -> web.Response:
    return web.json_response({})


def main() -> None:
    if "fails" in NAME:
        sys.exit("ValueError: told to fail")
    time.sleep(float(os.environ.get("STAND_IN_BOOT_S", "0")))
    print("GPU KV cache size: 1,000 tokens", flush=True)
    note("up")
    application = web.Application()
    application.add_routes(
        [
            web.get("/health", healthy),
            web.get("/metrics", healthy),
            web.post("/v1/completions", completions),
            web.post("/v1/chat/completions", chat),
            web.post("/start_profile", profile),
            web.post("/stop_profile", profile),
        ]
    )
    web.run_app(application, host="127.0.0.1", port=CONFIG["port"], print=None)


if __name__ == "__main__":
    main()

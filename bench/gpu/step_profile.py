"""What one engine's steps spend their time on: kernels by name, from vLLM's own profiler.

An engine that was started with `PROFILER` among its arguments is profiled for a moment in the middle of a burst.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp

from bench.gpu.client import Burst, Client

SETTLE_S = 2.5  # prompts are read by then
RECORD_S = 0.25
NAMES = 60
ON_THE_CARD = ("kernel", "gpu_memcpy", "gpu_memset")


def profiler(folder: Path) -> dict[str, Any]:
    """The argument that lets an engine be profiled; it costs nothing until it is."""
    return {
        "profiler-config": {
            "profiler": "torch",
            "torch_profiler_dir": str(folder),
            "torch_profiler_with_stack": False,
            "torch_profiler_dump_cuda_time_total": False,
        }
    }


async def record(session: aiohttp.ClientSession, port: int, client: Client, burst: Burst) -> None:
    """Profile a moment of a burst while all its requests decode; whole, if it is of prompts alone."""

    async def switch(word: str) -> None:
        async with session.post(f"http://127.0.0.1:{port}/{word}_profile") as response:
            response.raise_for_status()

    if burst.output_tokens == 1:
        await switch("start")
        await client.burst(burst)
        await switch("stop")
        return
    running = asyncio.create_task(client.burst(burst))
    await asyncio.sleep(SETTLE_S)
    await switch("start")
    await asyncio.sleep(RECORD_S)
    await switch("stop")
    await running


def summary(folder: Path) -> list[dict[str, Any]]:
    """Kernels of each rank's trace, largest share first: name, calls and milliseconds, and the span they were in."""
    found = []
    for path in sorted(folder.rglob("*.json*")):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        events = [one for one in json.loads(text).get("traceEvents", ()) if one.get("cat") in ON_THE_CARD]
        if not events:
            continue
        calls: dict[str, list[float]] = defaultdict(list)
        for event in events:
            calls[event["name"][:140]].append(event["dur"])
        start, end = min(one["ts"] for one in events), max(one["ts"] + one["dur"] for one in events)
        kernels = sorted(((sum(times), len(times), name) for name, times in calls.items()), reverse=True)
        found.append(
            {
                "trace": path.name[:60],
                "span_ms": round((end - start) / 1e3, 3),
                "busy_ms": round(sum(total for total, _, _ in kernels) / 1e3, 3),
                "kernels": [[name, count, round(total / 1e3, 3)] for total, count, name in kernels[:NAMES]],
            }
        )
    return found

"""Run arms on real cards and write one JSON report.

usage: PYTHON bench/gpu/run.py --arms FILE --out DIR [--deadline-s N] [--pool-slots K] [--only NAME,...]

An arm (made by bench/gpu/arms.py from qwenlab's own plans) is one configuration of vLLM. `what` is `pool` (start only
until the KV pool's size is printed) or `serve` (start, measure the bursts, record greedy token ids). Arms for
one card run side by side, one lane a card; arms for several cards run after them, alone. The report holds every
figure as it was read, the prediction beside it, and the log's last lines where an arm failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench.gpu.client import Burst, Client  # noqa: E402  (the repository is not installed where this runs)
from bench.gpu.server import Server, Start  # noqa: E402

SERVED_NAME = "q"
FIRST_PORT = 18_200


class Report:
    """Collects results; every new one is on disk at once, so that a run cut short loses nothing."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock, self.results = path, threading.Lock(), list[dict[str, Any]]()

    def add(self, result: dict[str, Any]) -> None:
        """Append one arm's result and rewrite the file."""
        with self._lock:
            self.results.append(result)
            self._path.write_text(json.dumps(self.results, indent=1) + "\n")
            short = {key: result.get(key) for key in ("name", "state", "ready_s", "seconds")}
            pool = result.get("log", {}).get("kv_tokens")
            print(json.dumps({**short, "kv_tokens": pool, "predicted": result.get("predicted")}), flush=True)
            for figures in result.get("bursts", ()):
                print("   ", json.dumps(figures), flush=True)


def run_arm(arm: dict[str, Any], cards: list[int], port: int, out: Path, deadline: float) -> dict[str, Any]:
    """Start one arm on `cards`, do what it asks, end it; never raises for the engine's failure."""
    began = time.monotonic()
    env = {**arm["env"], "CUDA_VISIBLE_DEVICES": ",".join(map(str, cards)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    server = Server(Path(sys.executable), Start(arm["name"], arm["model"], arm["args"], env, port), out)
    result: dict[str, Any] = {
        "name": arm["name"],
        "cards": cards,
        "predicted": arm.get("predicted"),
        "args": arm["args"],
    }
    limit = min(arm.get("limit_s", 400), max(deadline - time.monotonic(), 1))
    try:
        if arm["what"] == "pool":
            result["state"] = "ok" if server.wait_for_pool(limit) else "failed"
        else:
            ready = server.wait_ready(limit)
            result |= {"state": "ok" if ready else "failed", "ready_s": ready}
            if ready:
                result |= asyncio.run(ask(arm, port))
    finally:
        server.stop()
    log = server.log()
    if log.multicast:
        result["state"] = "stopped: NVLink multicast"
    if result["state"] != "ok":
        result["tail"] = server.tail()
    return {**result, "log": log.as_json(), "seconds": round(time.monotonic() - began, 1)}


async def ask(arm: dict[str, Any], port: int) -> dict[str, Any]:
    """Send what the arm asks: bursts, then greedy prompts, then one chat completion."""
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=1 << 20) as session:
        client = Client(session, port, SERVED_NAME, arm.get("vocabulary", 248_000))
        bursts = [await client.burst(Burst(**burst)) for burst in arm.get("bursts", ())]
        greedy = [await client.greedy(prompt, arm["greedy_tokens"]) for prompt in arm.get("greedy", ())]
        chat = {"model": SERVED_NAME, "messages": [{"role": "user", "content": "w500 w501"}], "max_tokens": 8}
        async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=chat) as response:
            return {"bursts": bursts, "greedy": greedy, "chat_status": response.status}


def run_lane(arms: queue.Queue[dict[str, Any]], cards: list[int], port: int, out: Path, end: float, to: Report) -> None:
    """Take arms for these cards until none is left or the time is over."""
    while True:
        try:
            arm = arms.get_nowait()
        except queue.Empty:
            return
        if time.monotonic() > end - arm.get("least_s", 60):
            to.add({"name": arm["name"], "state": "not run: no time left", "predicted": arm.get("predicted")})
            continue
        to.add(run_arm(arm, cards, port, out, end))


def main() -> int:
    """Run the arms; 0 when every arm that ran is ok."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--arms", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--cards", type=int, default=1)
    options.add_argument("--deadline-s", type=float, default=3600)
    options.add_argument("--pool-slots", type=int, default=2)
    options.add_argument("--only", default="")
    given = options.parse_args()
    end = time.monotonic() + given.deadline_s
    chosen = set(filter(None, given.only.split(",")))
    arms = [arm for arm in json.loads(given.arms.read_text()) if not chosen or chosen & {arm["name"], arm["group"]}]
    given.out.mkdir(parents=True, exist_ok=True)
    report = Report(given.out / "report.json")
    stages: list[tuple[list[dict[str, Any]], int]] = [
        ([arm for arm in arms if arm["cards"] == 1 and arm["what"] == "pool"], given.pool_slots),
        ([arm for arm in arms if arm["cards"] == 1 and arm["what"] != "pool"], 1),
    ]
    for batch, slots in stages:
        waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        for arm in batch:
            waiting.put(arm)
        lanes = [
            threading.Thread(
                target=run_lane,
                args=(waiting, [card], FIRST_PORT + 20 * (card * slots + slot), given.out, end, report),
            )
            for card in range(given.cards)
            for slot in range(slots)
        ]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()
    several: queue.Queue[dict[str, Any]] = queue.Queue()
    for arm in arms:
        if arm["cards"] > 1:
            several.put(arm)
    run_lane(several, list(range(given.cards)), FIRST_PORT + 1000, given.out, end, report)
    return 0 if all(result["state"] == "ok" for result in report.results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Run arms on real cards and write one JSON report.

usage: PYTHON -m bench.gpu.run --arms FILE --out DIR --release NAME=PYTHON ... [--deadline-s N] [--cards K]

An arm (made by bench/gpu/arms.py from qwenlab's own plans) is one configuration of vLLM. `what` is `pool` (start only
until the KV pool's size is printed) or `serve` (start, measure the bursts, record greedy token ids; where it names a
`teacher`, also the log-probabilities of that arm's tokens). Arms that name `need_gib` share cards; the others have
theirs alone. Arms of one `wave` start together and are measured one after another once all are up. The report holds
every figure as it was read, the prediction beside it, and the log's last lines where an arm failed. Run from the
repository's root: PYTHON is an engine release's, which has no qwenlab installed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.gpu import step_profile
from bench.gpu.client import Burst, Client
from bench.gpu.server import Server, Start
from bench.gpu.wave import State, Wave, stays, waves

SERVED_NAME = "q"
FIRST_PORT = 18_200
PORTS = 20  # an engine takes some beside the one that it answers on


class Report:
    """Collects results; every new one is on disk at once, so that a run cut short loses nothing."""

    def __init__(self, path: Path) -> None:
        self._path, self._added, self.results = path, threading.Condition(), list[dict[str, Any]]()

    def add(self, result: dict[str, Any]) -> None:
        """Append one arm's result and rewrite the file."""
        with self._added:
            self.results.append(result)
            self._added.notify_all()
            self._path.write_text(json.dumps(self.results, indent=1) + "\n")
            short = {key: result.get(key) for key in ("name", "state", "ready_s", "seconds")}
            pool = result.get("log", {}).get("kv_tokens")
            print(json.dumps({**short, "kv_tokens": pool, "predicted": result.get("predicted")}), flush=True)
            for figures in result.get("bursts", ()):
                print("   ", json.dumps(figures), flush=True)

    def wait_for(self, name: str, limit_s: float) -> dict[str, Any] | None:
        """The result of another arm as soon as it is there; None when it takes longer."""

        def found() -> dict[str, Any] | None:
            return next((result for result in self.results if result["name"] == name), None)

        with self._added:
            return self._added.wait_for(found, limit_s)


def run_arm(
    arm: dict[str, Any],
    python: Path,
    cards: list[int],
    port: int,
    out: Path,
    deadline: float,
    report: Report,
    wave: Wave,
) -> dict[str, Any]:
    """Start one arm on `cards`, do what it asks, end it; never raises for the engine's failure."""
    began = time.monotonic()
    traces = out / f"{arm['name']}-traces"
    if arm.get("profile"):
        arm["args"] |= step_profile.profiler(traces)
    env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, cards)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **arm["env"]}
    server = Server(python, Start(arm["name"], arm["model"], arm["args"], env, port), out)
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
        elif arm["what"] == "refused":
            server.wait_ready(limit)
            result["state"] = "ok" if arm["words"] in server.text() else "failed"
        else:
            ready = server.wait_ready(limit)
            result |= {"state": "ok" if ready else "failed", "ready_s": ready}
            if ready and stays(arm):
                wave.set(arm["name"], State.UP, cards)
                result["waited"] = wave.wait_for_turn(arm["name"], max(deadline - time.monotonic(), 1))
            if ready:
                result |= asyncio.run(ask(arm, port, report, max(deadline - time.monotonic(), 1)))
        wave.set(arm["name"], State.DONE)
        if result["state"] == "ok" and stays(arm):
            wave.wait_for_end(max(deadline - time.monotonic(), 1))
    finally:
        wave.set(arm["name"], State.DONE)
        server.stop()
    log = server.log()
    if log.multicast:
        result["state"] = "stopped: NVLink multicast"
    if result["state"] != "ok":
        result["tail"] = server.tail()
    if arm.get("profile"):
        result["profile"] = step_profile.summary(traces)
    return {**result, "log": log.as_json(), "seconds": round(time.monotonic() - began, 1)}


async def ask(arm: dict[str, Any], port: int, report: Report, limit_s: float) -> dict[str, Any]:
    """Send what the arm asks: bursts, then greedy prompts, its teacher's tokens, and one chat completion."""
    timeout = aiohttp.ClientTimeout(total=300)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=1 << 20) as session:
        client = Client(session, port, SERVED_NAME, arm.get("vocabulary", 248_000))
        bursts = [await client.burst(Burst(**burst)) for burst in arm.get("bursts", ())]
        if arm.get("profile"):
            await step_profile.record(session, port, client, Burst(**arm["profile"]))
        greedy = [await client.greedy(prompt, arm["greedy_tokens"]) for prompt in arm.get("greedy", ())]
        forced = None
        if teacher := arm.get("teacher"):
            answers = greedy if teacher == arm["name"] else await tokens_of(teacher, report, limit_s)
            pairs = zip(arm["greedy"], answers, strict=False)
            forced = [await client.forced(prompt, answer["tokens"]) for prompt, answer in pairs]
        chat = {"model": SERVED_NAME, "messages": [{"role": "user", "content": "w500 w501"}], "max_tokens": 8}
        async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=chat) as response:
            return {"bursts": bursts, "greedy": greedy, "forced": forced, "chat_status": response.status}


async def tokens_of(teacher: str, report: Report, limit_s: float) -> list[dict[str, Any]]:
    """What another arm of this run has answered; nothing when it failed or is not part of the run."""
    result = await asyncio.to_thread(report.wait_for, teacher, limit_s)
    found: list[dict[str, Any]] = (result or {}).get("greedy", [])
    return found


class Cards:
    """Hands out cards to arms: several small arms share one, an arm that needs a whole card gets it alone."""

    def __init__(self, count: int, gib: float) -> None:
        self._free, self._changed = [gib] * count, threading.Condition()
        self.gib = gib

    def take(self, count: int, gib: float, named: list[int] | None = None) -> list[int]:
        """Wait for `gib` on each of `count` cards, the `named` ones or the emptiest; more than a card has means all."""
        need = min(gib, self.gib)
        with self._changed:
            while True:
                order = named or sorted(range(len(self._free)), key=lambda card: -self._free[card])[:count]
                if len(order) == count and all(self._free[card] >= need for card in order):
                    for card in order:
                        self._free[card] -= need
                    return sorted(order)
                self._changed.wait()

    def give_back(self, cards: list[int], gib: float) -> None:
        """Return what `take` gave."""
        with self._changed:
            for card in cards:
                self._free[card] += min(gib, self.gib)
            self._changed.notify_all()


def schedule(
    arms: list[dict[str, Any]], releases: dict[str, Path], cards: Cards, out: Path, end: float, report: Report
) -> None:
    """Run the arms wave by wave, within one in order and as many at once as the cards' memory allows."""
    port = FIRST_PORT
    for members in waves(arms, cards.gib):
        run_wave(members, releases, cards, out, end, report, port)
        port += PORTS * len(members)


def run_wave(
    arms: list[dict[str, Any]],
    releases: dict[str, Path],
    cards: Cards,
    out: Path,
    end: float,
    report: Report,
    first_port: int,
) -> None:
    """Run the arms of one wave and wait for the last of them."""
    threads, wave = [], Wave(arms)
    for number, arm in enumerate(arms):
        got = cards.take(arm["cards"], arm.get("need_gib", 1e9), arm.get("named_cards"))
        if time.monotonic() > end - arm.get("least_s", 60):
            report.add({"name": arm["name"], "state": "not run: no time left", "predicted": arm.get("predicted")})
            wave.set(arm["name"], State.DONE)
            cards.give_back(got, arm.get("need_gib", 1e9))
            continue

        def work(arm: dict[str, Any] = arm, got: list[int] = got, port: int = first_port + PORTS * number) -> None:
            try:
                report.add(run_arm(arm, releases[arm.get("release", "stock")], got, port, out, end, report, wave))
            finally:
                cards.give_back(got, arm.get("need_gib", 1e9))

        threads.append(threading.Thread(target=work))
        threads[-1].start()
    for thread in threads:
        thread.join()


def main() -> int:
    """Run the arms; 0 when every arm that ran is ok."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--arms", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--release", action="append", required=True, metavar="NAME=PYTHON")
    options.add_argument("--cards", type=int, default=1)
    options.add_argument("--deadline-s", type=float, default=3600)
    options.add_argument("--card-gib", type=float, default=134, help="memory of a card that arms may share")
    options.add_argument("--only", default="")
    given = options.parse_args()
    end = time.monotonic() + given.deadline_s
    chosen = set(filter(None, given.only.split(",")))
    arms = [arm for arm in json.loads(given.arms.read_text()) if not chosen or chosen & {arm["name"], arm["group"]}]
    given.out.mkdir(parents=True, exist_ok=True)
    report = Report(given.out / "report.json")
    releases = {name: Path(python) for name, python in (item.split("=", 1) for item in given.release)}
    schedule(arms, releases, Cards(given.cards, given.card_gib), given.out, end, report)
    return 0 if all(result["state"] == "ok" for result in report.results) else 1


if __name__ == "__main__":
    sys.exit(main())

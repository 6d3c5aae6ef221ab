"""Load on a serving engine over time:  python -m bench.soak --url http://HOST:8000 --key-file FILE

Streams of chat completions, `--streams` at a time for `--seconds`, some of which their client abandons half way; with
`--restart COMMAND` the service is restarted once, half way, for as long as that takes. Every request ends in one of
`ENDS`. `hung`, a stream on which nothing came for `--patience` seconds, is a failure, and so are an end that HTTP
knows no words for, no request completed after the restart, and memory that grows: `--memory COMMAND` prints the
service's in KiB (e.g. `ssh HOST "ps -u qwen -o rss= | awk '{s+=$1} END {print s}'"`), as one number or as a name and a
number a line, for each process. Of each half the first third is left out (pools and caches fill); what follows must
not rise by more than `--growth` percent from its first to its last third, in no process and not in all together. Exit
code 1 on a failure. `--json FILE` keeps the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ENDS = {
    "completed": "to [DONE], with a token count",
    "abandoned": "the client closed it half way",
    "aborted": "the server ended it early and said so (finish_reason abort)",
    "refused": "no connection, or 503: the service is down or starting",
    "cut": "the connection ended under it: the service was stopped",
    "error": "an HTTP error, or an error as an event of the stream",
    "hung": "nothing came within the patience",
    "odd": "a stream that ended in good order without its [DONE]",
}
CLEAN = ("completed", "abandoned", "aborted", "refused", "cut", "error")
PAUSE_AFTER_REFUSAL_S = 0.5
ABANDONED = 0.1  # share of requests
SAMPLE_S = 2.0
WORDS = ("light", "house", "keeper", "sea", "storm", "night", "lamp", "stair", "ship", "bell", "tide", "stone", "door")


@dataclass(frozen=True)
class Ask:
    """What is asked of whom.

    Attributes:
        url: the server; key: what requests carry.
        streams: requests at a time; seconds: for how long.
        patience_s: how long a stream may bring nothing.
        restart: shell command, run once at half time.
        memory: shell command that prints the service's memory in KiB, or a name and KiB a line.
    """

    url: str
    key: str | None
    model: str
    streams: int
    seconds: float
    patience_s: float
    restart: str | None = None
    memory: str | None = None
    seed: int = 0


@dataclass
class Request:
    """One request: when it began and ended [s since the start], its end, and tokens made."""

    began: float
    ended: float
    end: str
    tokens: int = 0
    detail: str = ""


@dataclass
class Soak:
    """A run: its requests, the memory over time [s, KiB by name] and when the restart began and ended [s]."""

    ask: Ask
    requests: list[Request] = field(default_factory=list)
    memory: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    restarted: tuple[float, float] | None = None
    restart_failed: bool = False
    started: float = field(default_factory=time.monotonic)

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def over(self) -> bool:
        """Whether no further request is to begin."""
        if self.ask.restart is None:
            return self.now() >= self.ask.seconds
        return self.restarted is not None and self.now() >= self.restarted[1] + self.ask.seconds / 2

    async def run(self) -> None:
        """Keep the streams busy until the time is over; then each ends its last request."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=self.ask.patience_s, sock_connect=self.ask.patience_s)
        headers = {"Authorization": f"Bearer {self.ask.key}"} if self.ask.key else {}
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, headers=headers, connector=connector) as session:
            ended = asyncio.Event()
            watching = asyncio.create_task(self._watch(ended))
            restarting = asyncio.create_task(self._restart())
            await asyncio.gather(*(self._stream(session, number) for number in range(self.ask.streams)))
            await restarting
            ended.set()
            await watching

    async def _stream(self, session: aiohttp.ClientSession, number: int) -> None:
        chance = random.Random(f"{self.ask.seed} {number}")
        while not self.over():
            request = await self._one(session, chance)
            self.requests.append(request)
            if request.end in ("refused", "error"):
                await asyncio.sleep(PAUSE_AFTER_REFUSAL_S)

    async def _one(self, session: aiohttp.ClientSession, chance: random.Random) -> Request:
        words = chance.choices(WORDS, k=chance.randint(8, 300))
        give_up_after = chance.randint(1, 8) if chance.random() < ABANDONED else None
        body = {
            "model": self.ask.model,
            "messages": [{"role": "user", "content": f"Tell a story of: {' '.join(words)}"}],
            "max_tokens": chance.randint(8, 96),
            "temperature": 0.7,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        request = Request(self.now(), 0.0, "odd")
        try:
            async with session.post(f"{self.ask.url}/v1/chat/completions", json=body) as answer:
                if answer.status == 200:
                    await _read(answer, request, give_up_after)
                else:
                    request.end = "refused" if answer.status in (502, 503, 504) else "error"
                    request.detail = f"HTTP {answer.status}"
        except TimeoutError as error:
            request.end, request.detail = "hung", repr(error)
        except aiohttp.ClientConnectorError:
            request.end = "refused"
        except (aiohttp.ClientError, ConnectionError) as error:
            request.end, request.detail = "cut", type(error).__name__
        request.ended = self.now()
        return request

    async def _restart(self) -> None:
        if self.ask.restart is None:
            return
        await asyncio.sleep(self.ask.seconds / 2)
        began = self.now()
        process = await asyncio.create_subprocess_shell(self.ask.restart)
        self.restart_failed = await process.wait() != 0
        self.restarted = (began, self.now())

    async def _watch(self, ended: asyncio.Event) -> None:
        while self.ask.memory is not None and not ended.is_set():
            process = await asyncio.create_subprocess_shell(self.ask.memory, stdout=asyncio.subprocess.PIPE)
            said, _ = await process.communicate()
            if read := processes(said.decode()):
                self.memory.append((self.now(), read))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), SAMPLE_S)


async def _read(answer: aiohttp.ClientResponse, request: Request, give_up_after: int | None) -> None:
    """Read a stream to its end, or give it up after so many pieces."""
    pieces = 0
    async for raw in answer.content:
        line = raw.decode().strip()
        if line == "data: [DONE]":
            if request.end != "aborted":
                request.end = "completed" if request.tokens else "odd"
            return
        if not line.startswith("data:"):
            continue
        event = json.loads(line[5:])
        if "error" in event:
            request.end, request.detail = "error", str(event["error"])[:200]
            return
        if any(choice.get("finish_reason") == "abort" for choice in event.get("choices", ())):
            request.end = "aborted"
        request.tokens = (event.get("usage") or {}).get("completion_tokens", request.tokens)
        pieces += 1
        if give_up_after is not None and pieces >= give_up_after:
            request.end = "abandoned"
            answer.close()
            return


def processes(said: str) -> dict[str, int]:
    """Memory by name, and under `all` the sum; empty when the command said something else."""
    rows = [line.split() for line in said.splitlines() if line.strip()]
    if not rows or not all(len(row) in (1, 2) and row[-1].isdigit() for row in rows):
        return {}
    named = {row[0]: int(row[1]) for row in rows if len(row) == 2}
    return {"all": sum(int(row[-1]) for row in rows), **named}


def growth(samples: Sequence[tuple[float, int]]) -> float | None:
    """Percent by which memory rises over the samples of one half, its first third left out; None with too few."""
    settled = [value for _, value in samples[len(samples) // 3 :]]
    third = len(settled) // 3
    if third < 2:
        return None
    first, last = statistics.mean(settled[:third]), statistics.mean(settled[-third:])
    return round(100 * (last - first) / first, 2)


def summary(soak: Soak) -> dict[str, Any]:
    """The figures of a run; memory in MiB, times in seconds."""
    ends = Counter(request.end for request in soak.requests)
    completed = [request for request in soak.requests if request.end == "completed"]
    took = sorted(request.ended - request.began for request in completed)
    began, ended = soak.restarted or (soak.ask.seconds, soak.ask.seconds)
    halves = {
        "before": [row for row in soak.memory if row[0] < began],
        "after": [row for row in soak.memory if row[0] > ended] if soak.restarted else [],
    }
    return {
        "streams": soak.ask.streams,
        "seconds": soak.ask.seconds,
        "requests": len(soak.requests),
        "ends": {end: ends[end] for end in ENDS},
        "details": dict(Counter(request.detail for request in soak.requests if request.detail)),
        "tokens": sum(request.tokens for request in soak.requests),
        "median_s": round(statistics.median(took), 2) if took else None,
        "longest_s": round(took[-1], 2) if took else None,
        "restart_s": round(ended - began, 1) if soak.restarted else None,
        "completed_after_restart": sum(request.began > ended for request in completed) if soak.restarted else None,
        "memory_mib": {
            half: {name: [round(kib / 1024) for _, kib in _of(rows, name)] for name in _names(rows)}
            for half, rows in halves.items()
        },
        "growth_percent": {
            half: {name: growth(_of(rows, name)) for name in _names(rows)} for half, rows in halves.items()
        },
    }


def _names(rows: Sequence[tuple[float, dict[str, int]]]) -> list[str]:
    return list(dict.fromkeys(name for _, read in rows for name in read))


def _of(rows: Sequence[tuple[float, dict[str, int]]], name: str) -> list[tuple[float, int]]:
    return [(at, read[name]) for at, read in rows if name in read]


def failures(found: dict[str, Any], soak: Soak, growth_percent: float) -> list[str]:
    """What must not have happened."""
    said = [f"{found['ends'][end]} requests {end}: {what}" for end, what in ENDS.items() if end not in CLEAN]
    said = [text for text in said if not text.startswith("0 ")]
    if not found["ends"]["completed"]:
        said.append("no request completed")
    if soak.restart_failed:
        said.append("the restart failed")
    if found["completed_after_restart"] == 0:
        said.append("no request completed after the restart")
    for half, grown in found["growth_percent"].items():
        for name, percent in grown.items():
            if percent is not None and percent > growth_percent:
                said.append(f"memory of {name} grew by {percent} % {half} the restart")
    return said


def table(found: dict[str, Any]) -> str:
    """For a person."""
    lines = [f"{found['requests']} requests, {found['streams']} at a time, {found['seconds']:g} s"]
    lines += [f"  {end:<10} {count:>6}  {ENDS[end]}" for end, count in found["ends"].items()]
    lines.append(f"  completed in {found['median_s']} s (median), {found['longest_s']} s (longest)")
    if found["restart_s"] is not None:
        lines.append(f"  restart took {found['restart_s']} s; {found['completed_after_restart']} completed after it")
    for half, memory in found["memory_mib"].items():
        for name, values in memory.items():
            grew = found["growth_percent"][half][name]
            lines.append(f"  memory of {name} {half}: {min(values)} to {max(values)} MiB, grew {grew} % once settled")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run the load and judge it."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description="Load on a serving engine over time.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--key-file", type=Path)
    parser.add_argument("--model", default="qwen")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--patience", type=float, default=120.0)
    parser.add_argument("--growth", type=float, default=5.0)
    parser.add_argument("--restart", metavar="COMMAND")
    parser.add_argument("--memory", metavar="COMMAND")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(argv)
    key = given.key_file.read_text().strip() if given.key_file else None
    url = given.url.rstrip("/")
    ask = Ask(url, key, given.model, given.streams, given.seconds, given.patience, given.restart, given.memory)
    soak = Soak(ask)
    asyncio.run(soak.run())
    found = summary(soak)
    found["failures"] = failures(found, soak, given.growth)
    print(table(found))
    print("\n".join(f"FAILED: {text}" for text in found["failures"]) or "every request ended cleanly; memory is flat")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())

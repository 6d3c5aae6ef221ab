"""The load of bench/soak.py, on servers that end their answers in every way there is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from bench import soak
from bench.soak import Ask, Request, Soak

Answer = Callable[[web.Request, web.StreamResponse], Awaitable[None]]
PIECE = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 1}}\n\n'


async def _whole(request: web.Request, answer: web.StreamResponse) -> None:
    await answer.write(PIECE + USAGE + b"data: [DONE]\n\n")


async def _without_its_end(request: web.Request, answer: web.StreamResponse) -> None:
    await answer.write(PIECE + USAGE)


async def _cut(request: web.Request, answer: web.StreamResponse) -> None:
    await answer.write(PIECE)
    assert request.transport is not None
    request.transport.close()


async def _error(request: web.Request, answer: web.StreamResponse) -> None:
    await answer.write(PIECE + b'data: {"error": {"message": "the engine died"}}\n\n')


async def _aborted(request: web.Request, answer: web.StreamResponse) -> None:
    await answer.write(b'data: {"choices": [{"delta": {}, "finish_reason": "abort"}]}\n\ndata: [DONE]\n\n')


async def _nothing_more(request: web.Request, answer: web.StreamResponse) -> None:
    await answer.write(PIECE)
    await asyncio.sleep(0.6)


async def _endless(request: web.Request, answer: web.StreamResponse) -> None:
    while True:
        await answer.write(PIECE)
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(answer: Answer, status: int) -> AsyncIterator[str]:
    """A server whose every stream goes this way; its address."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if status != 200:
            return web.Response(status=status)
        response = web.StreamResponse()
        await response.prepare(request)
        await answer(request, response)
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def ran(answer: Answer, status: int = 200, restart: str | None = None, memory: str | None = None) -> Soak:
    """One round of requests against such a server."""

    async def run() -> Soak:
        async with serving(answer, status) as url:
            made = Soak(Ask(url, None, "qwen", 1, 0.05, patience_s=0.3, restart=restart, memory=memory))
            await made.run()
            return made

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "status", "end"),
    [
        (_whole, 200, "completed"),
        (_without_its_end, 200, "odd"),
        (_cut, 200, "cut"),
        (_error, 200, "error"),
        (_aborted, 200, "aborted"),
        (_nothing_more, 200, "hung"),
        (_whole, 500, "error"),
        (_whole, 503, "refused"),
    ],
)
def test_every_end_has_its_name(answer: Answer, status: int, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "ABANDONED", 0)
    monkeypatch.setattr(soak, "PAUSE_AFTER_REFUSAL_S", 0.1)
    made = ran(answer, status)
    assert {request.end for request in made.requests} == {end}
    failed = soak.failures(soak.summary(made), made, 5)
    assert bool(failed) == (end != "completed")


def test_nobody_there_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "PAUSE_AFTER_REFUSAL_S", 0.1)
    made = Soak(Ask("http://127.0.0.1:9", None, "qwen", 2, seconds=0.05, patience_s=1))
    asyncio.run(made.run())
    assert [request.end for request in made.requests] == ["refused"] * 2


def test_some_streams_are_abandoned_half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "ABANDONED", 1)
    assert {request.end for request in ran(_endless).requests} == {"abandoned"}


def test_the_restart_comes_once_and_its_failure_is_one() -> None:
    made = ran(_whole, restart="false")
    assert made.restarted is not None
    assert "the restart failed" in soak.failures(soak.summary(made), made, 5)


def test_memory_is_read_on_the_way() -> None:
    assert all(read == {"all": 2048} for _, read in ran(_whole, memory="echo 2048").memory)


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("2048\n", {"all": 2048}),
        ("api 1000\ncore 48\n", {"all": 1048, "api": 1000, "core": 48}),
        ("", {}),
        ("ssh: connect to host rack port 22: Connection refused\n", {}),
    ],
)
def test_memory_is_one_number_or_one_a_process(said: str, read: dict[str, int]) -> None:
    assert soak.processes(said) == read


@pytest.mark.parametrize(
    ("values", "percent"),
    [([100] * 30, 0.0), ([10] * 10 + [100] * 20, 0.0), (list(range(100, 130)), 12.44), ([100] * 5, None)],
    ids=["flat", "flat-once-settled", "rising", "too-few"],
)
def test_growth_is_judged_once_memory_has_settled(values: list[int], percent: float | None) -> None:
    assert soak.growth([(float(place), value) for place, value in enumerate(values)]) == percent


def test_growth_beyond_the_limit_fails() -> None:
    made = Soak(Ask("", None, "qwen", 1, seconds=30, patience_s=1))
    made.requests.append(Request(0, 1, "completed", tokens=3))
    made.memory = [
        (float(place), {"all": 1024 * 1000, "core": 1024 * value, "api": 1024 * (1000 - value)})
        for place, value in enumerate(range(100, 130))
    ]
    found = soak.summary(made)
    assert soak.failures(found, made, 5) == ["memory of core grew by 12.44 % before the restart"]
    assert soak.failures(found, made, 20) == []
    assert "memory of core before: 100 to 129 MiB, grew 12.44 %" in soak.table(json.loads(json.dumps(found)))

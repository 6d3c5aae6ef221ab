"""A streaming load client: bursts of requests with random token ids against one engine, measured at the client.

Needs aiohttp, which every vLLM release carries. Rates are output tokens per second; times are seconds.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import aiohttp

COUNTERS = (
    "spec_decode_num_drafts",
    "spec_decode_num_accepted_tokens",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "num_preemptions",
)


@dataclass(frozen=True)
class Burst:
    """`concurrency` requests sent at once; `seed` fixes the prompts, so that an equal seed repeats them."""

    label: str
    concurrency: int
    prompt_tokens: int
    output_tokens: int
    seed: int = 0


@dataclass
class Answer:
    """Arrival times of the tokens of one request; `counts[i]` tokens had arrived at `times[i]`."""

    sent: float
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    error: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens that arrived."""
        return self.counts[-1] if self.counts else 0


def prompts(burst: Burst, vocabulary: int) -> list[list[int]]:
    """Random prompts as token ids, special ids left out."""
    source = random.Random(f"{burst.seed}/{burst.prompt_tokens}")
    return [[source.randrange(100, vocabulary) for _ in range(burst.prompt_tokens)] for _ in range(burst.concurrency)]


def measure(answers: Sequence[Answer], wall: float) -> dict[str, Any]:
    """The figures of one burst.

    Returns:
        `tok_s`: all tokens by the wall clock, prefill included; `steady_tok_s`: only while every request decodes;
        `tpot_ms`: median time per output token; `ttft_s`: median and worst time to the first token.
    """
    good = [answer for answer in answers if answer.error is None and answer.times]
    figures: dict[str, Any] = {
        "ok": len(good),
        "errors": [answer.error for answer in answers if answer.error][:2],
        "wall_s": round(wall, 3),
    }
    if not good:
        return figures
    first = sorted(answer.times[0] - answer.sent for answer in good)
    figures |= {
        "tok_s": round(sum(answer.tokens for answer in good) / wall, 1),
        "ttft_s": round(median(first), 4),
        "ttft_max_s": round(first[-1], 4),
    }
    long = [answer for answer in good if answer.tokens > answer.counts[0]]
    if long:
        per_token = [(a.times[-1] - a.times[0]) / (a.tokens - a.counts[0]) for a in long]
        figures["tpot_ms"] = round(1e3 * median(per_token), 3)
        start, end = max(a.times[0] for a in good), min(a.times[-1] for a in good)
        if end > start:
            tokens = sum(_tokens_at(a, end) - _tokens_at(a, start) for a in good)
            figures["steady_tok_s"] = round(tokens / (end - start), 1)
    return figures


def _tokens_at(answer: Answer, moment: float) -> int:
    return max((count for time_, count in zip(answer.times, answer.counts, strict=True) if time_ <= moment), default=0)


class Client:
    """Talks to one engine on loopback."""

    def __init__(self, session: aiohttp.ClientSession, port: int, model: str, vocabulary: int = 248_000) -> None:
        self._session, self._base, self._model = session, f"http://127.0.0.1:{port}", model
        self._vocabulary = vocabulary

    async def burst(self, burst: Burst) -> dict[str, Any]:
        """Send one burst and measure it, with the change of vLLM's counters beside it."""
        before, start = await self.counters(), time.perf_counter()
        answers = await asyncio.gather(
            *(self._ask(prompt, burst.output_tokens) for prompt in prompts(burst, self._vocabulary))
        )
        wall = time.perf_counter() - start
        after = await self.counters()
        change = {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}
        if drafts := change.get("spec_decode_num_drafts"):
            change["acceptance_length"] = round(1 + change.get("spec_decode_num_accepted_tokens", 0) / drafts, 3)
        return {"label": burst.label, "concurrency": burst.concurrency, **measure(answers, wall), "counters": change}

    async def greedy(self, prompt: list[int], tokens: int) -> dict[str, Any]:
        """The greedy continuation of `prompt`: token ids, each one's log-probability and its lead over the next best.

        Both in nats.
        """
        answer = await self._ask(prompt, tokens, logprobs=2)
        return {
            "tokens": answer.token_ids,
            "logprobs": answer.logprobs,
            "margins": answer.margins,
            "error": answer.error,
        }

    async def forced(self, prompt: list[int], continuation: list[int]) -> list[float]:
        """Log-probabilities (nats) of each token of `continuation`, given `prompt` and those before it.

        Raises:
            aiohttp.ClientError: the engine did not answer.
        """
        body = {
            "model": self._model,
            "prompt": [*prompt, *continuation],
            "max_tokens": 1,
            "temperature": 0,
            "prompt_logprobs": 0,
        }
        async with self._session.post(f"{self._base}/v1/completions", json=body) as response:
            response.raise_for_status()
            places = (await response.json())["choices"][0]["prompt_logprobs"][len(prompt) :]
        pairs = zip(continuation, places, strict=True)
        return [round(float(place[str(token)]["logprob"]), 4) for token, place in pairs]

    async def _ask(self, prompt: list[int], tokens: int, logprobs: int | None = None) -> Answer:
        answer = Answer(time.perf_counter())
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **({} if logprobs is None else {"logprobs": logprobs}),
        }
        try:
            async with self._session.post(f"{self._base}/v1/completions", json=body) as response:
                if response.status != 200:
                    answer.error = f"{response.status} {(await response.text())[:300]}"
                    return answer
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        _take(answer, json.loads(line[6:]))
        except (aiohttp.ClientError, TimeoutError) as error:
            answer.error = repr(error)[:300]
        return answer

    async def counters(self) -> dict[str, float]:
        """vLLM's counters that the figures use, summed over engines."""
        async with self._session.get(f"{self._base}/metrics") as response:
            text = await response.text()
        found: dict[str, float] = {}
        for line in text.splitlines():
            for name in COUNTERS:
                if line.startswith(f"vllm:{name}_total"):
                    found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
        return found


def _take(answer: Answer, event: dict[str, Any]) -> None:
    if "error" in event:
        answer.error = str(event["error"])[:300]
        return
    for choice in event.get("choices", ()):
        answer.token_ids += choice.get("token_ids") or []
        for best in (choice.get("logprobs") or {}).get("top_logprobs") or []:
            first, second = sorted(best.values(), reverse=True)[:2]
            answer.logprobs.append(round(first, 4))
            answer.margins.append(round(first - second, 4))
    count = (event.get("usage") or {}).get("completion_tokens", 0)
    if count > answer.tokens:
        answer.times.append(time.perf_counter())
        answer.counts.append(count)

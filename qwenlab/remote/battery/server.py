"""An engine under test: requests to it, its streams and its counters."""

from __future__ import annotations

import json
import secrets
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any

from qwenlab.remote.common.engine_api import metrics, opener, total

TIMEOUT_S = 900
UNTRAINED_TOKENS = 24  # enough for the mechanics


class FailedError(Exception):
    """A check failed; the text says what came instead."""


class LeftOutError(Exception):
    """A check does not apply to this engine; the text says why."""


def must(condition: object, text: str) -> None:
    """Raises FailedError unless the condition holds."""
    if not condition:
        raise FailedError(text)


@dataclass
class Engine:
    """One engine under test.

    Attributes:
        plan: its part of plan.json.
        base: address of its API; key: what requests carry.
        trained: whether the answers' content is judged.
        rates: tokens per second measured on the way.
        salt: another for every run.
    """

    plan: dict[str, Any]
    base: str
    key: str | None
    model: str
    trained: bool
    rates: dict[str, float] = field(default_factory=dict)
    salt: str = field(default_factory=lambda: secrets.token_hex(4))

    def budget(self, tokens: int) -> int:
        """Tokens that an answer may take."""
        return tokens if self.trained else min(tokens, UNTRAINED_TOKENS)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The open answer of a request. Raises FailedError with the server's words."""
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self.key}"} if self.key else {})}
        request = urllib.request.Request(
            f"{self.base}{path}", json.dumps({"model": self.model, **body}).encode(), headers
        )
        try:
            return opener().open(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            raise FailedError(f"HTTP {error.code}: {error.read(300).decode(errors='replace')}") from None
        except OSError as error:
            raise FailedError(f"no answer: {error}") from None

    def chat(self, text: str, **more: Any) -> dict[str, Any]:
        """One whole answer to one message."""
        messages = more.pop("messages", [{"role": "user", "content": text}])
        with self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **more}) as answer:
            whole: dict[str, Any] = json.load(answer)
        return whole

    def stream(self, path: str, body: dict[str, Any]) -> Stream:
        """A streamed answer to its end."""
        body = {"temperature": 0, **body, "stream": True, "stream_options": {"include_usage": True}}
        with self.post(path, body) as answer:
            return read_stream(answer)

    def count(self, name: str) -> float:
        """A counter's sum over its labels; 0 when it is not there. Raises OSError when /metrics does not answer."""
        return total(metrics(self.base, self.key, timeout_s=30), name) or 0.0


@dataclass
class Stream:
    """What a stream brought: events in order, when the first and the last came [seconds], and whether it was closed."""

    events: list[dict[str, Any]] = field(default_factory=list)
    first_s: float = 0.0
    last_s: float = 0.0
    done: bool = False

    @property
    def usage(self) -> dict[str, Any]:
        """Token counts of the last event that has them."""
        found = [event["usage"] for event in self.events if event.get("usage")]
        return dict(found[-1]) if found else {}


def read_stream(lines: Any) -> Stream:
    """Read server-sent events to the end."""
    stream, started = Stream(), time.monotonic()
    for raw in lines:
        line = raw.decode().strip()
        if not line.startswith("data:"):
            continue
        if line == "data: [DONE]":
            stream.done = True
            continue
        event = json.loads(line[5:])
        if event.get("choices"):
            stream.last_s = time.monotonic() - started
            stream.first_s = stream.first_s or stream.last_s
        stream.events.append(event)
    return stream


def text_of(answer: dict[str, Any]) -> str:
    """Content of the answer, with its reasoning before it."""
    message = answer["choices"][0]["message"]
    return (message.get("reasoning") or message.get("reasoning_content") or "") + (message.get("content") or "")

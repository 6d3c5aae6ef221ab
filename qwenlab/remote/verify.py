#!/usr/bin/env python3
"""verify.py [--limit PERCENT] NAME...: a small fixed battery against engines of this host; exit 1 when one fails.

Asks each engine named in /etc/qwen/plan.json over its own API and leaves the result in
/var/lib/qwenlab/verify/NAME.json beside the one before. What only a trained model can do (know a fact, call a tool,
find a needle, not loop) is judged where the plan serves one; the cpu engine serves any small checkpoint, and there only
the mechanics are judged: the result says so. A rate that fell by more than the limit since the last run fails.
Standard library only.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ETC = Path("/etc/qwen")
RESULTS = Path("/var/lib/qwenlab/verify")
KEY = ETC / "secrets/api_key"
TIMEOUT_S = 900
NEEDLE = "The code of the vault is 7319."
FILLER = "The grass is green and the sky above the old town is blue today. "
WORDS_DISTINCT = 0.30  # a looping answer repeats itself; club-3090's bound for 2,000 tokens
DECODE_TOKENS = 64
UNTRAINED_TOKENS = 24  # enough for the mechanics
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "warm": {"type": "boolean"}},
    "required": ["colour", "warm"],
    "additionalProperties": False,
}


class FailedError(Exception):
    """A check failed; the text says what came instead."""


class LeftOutError(Exception):
    """A check does not apply to this engine; the text says why."""


@dataclass
class Engine:
    """One engine under test.

    Attributes:
        plan: its part of plan.json.
        base: address of its API; key: what requests carry.
        trained: whether the answers' content is judged.
        rates: tokens per second measured on the way.
    """

    plan: dict[str, Any]
    base: str
    key: str | None
    model: str
    trained: bool
    rates: dict[str, float] = field(default_factory=dict)

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

    def metrics(self) -> str:
        """Text of /metrics."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        with opener().open(urllib.request.Request(f"{self.base}/metrics", headers=headers), timeout=30) as page:
            return str(page.read().decode(errors="replace"))


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


def opener() -> urllib.request.OpenerDirector:
    """Requests go straight to the engine, whatever proxies the host uses."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


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


def counter(metrics: str, name: str) -> float:
    """Sum of a counter over its labels; 0 when it is not there."""
    pattern = re.compile(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", re.MULTILINE)
    return sum(float(value) for value in pattern.findall(metrics))


def text_of(answer: dict[str, Any]) -> str:
    """Content of the answer, with its reasoning before it."""
    message = answer["choices"][0]["message"]
    return (message.get("reasoning") or message.get("reasoning_content") or "") + (message.get("content") or "")


def must(condition: object, text: str) -> None:
    """Raises FailedError unless the condition holds."""
    if not condition:
        raise FailedError(text)


def check_fact(engine: Engine) -> str:
    """One fact."""
    answer = text_of(engine.chat("What is the capital of France? Answer with one word.", max_tokens=engine.budget(512)))
    must(answer.strip(), "the answer is empty")
    must(not engine.trained or "paris" in answer.lower(), f"no Paris in {answer[-80:]!r}")
    return f"{answer.strip()[-30:]!r}"


def check_stream(engine: Engine) -> str:
    """Streaming: pieces one by one, closed in good order."""
    stream = engine.stream(
        "/v1/chat/completions", {"messages": [{"role": "user", "content": "Count to ten."}], "max_tokens": 24}
    )
    pieces = sum(bool(event.get("choices")) for event in stream.events)
    must(stream.done, "the stream ended without [DONE]")
    must(pieces >= 3, f"only {pieces} pieces")
    must(stream.usage.get("completion_tokens"), "no token count at the end")
    return f"{pieces} pieces"


def check_tool(engine: Engine) -> str:
    """A streamed tool call with thinking on."""
    if not engine.plan["args"].get("enable-auto-tool-choice"):
        raise LeftOutError("the plan does not turn tool calls on")
    stream = engine.stream(
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "What is the weather in Oslo? Use the tool."}],
            "tools": [TOOL],
            "max_tokens": 2048,
            "chat_template_kwargs": {"enable_thinking": True},
        },
    )
    must(stream.done, "the stream ended without [DONE]")
    deltas = [choice["delta"] for event in stream.events for choice in event.get("choices", [])]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or []]
    name = "".join(call.get("name") or "" for call in calls)
    arguments = "".join(call.get("arguments") or "" for call in calls)
    must(name == "get_weather", f"called {name or 'nothing'!r}")
    try:
        city = json.loads(arguments).get("city", "")
    except (ValueError, AttributeError):
        raise FailedError(f"arguments are not JSON: {arguments[:80]!r}") from None
    must("oslo" in city.lower(), f"arguments {arguments[:80]!r}")
    return arguments


def check_schema(engine: Engine) -> str:
    """An answer bound to a JSON schema."""
    answer = engine.chat(
        "Name a warm colour.",
        max_tokens=engine.budget(256),
        chat_template_kwargs={"enable_thinking": False},
        response_format={"type": "json_schema", "json_schema": {"name": "colour", "schema": SCHEMA}},
    )
    content = answer["choices"][0]["message"].get("content") or ""
    if not engine.trained and answer["choices"][0]["finish_reason"] == "length":
        # an untrained model may spend its tokens on the white space that JSON allows
        must(re.fullmatch(r"\{[\s\w\":,]*", content), f"does not begin as the schema asks: {content[:80]!r}")
        return "begins as the schema asks"
    try:
        value = json.loads(content)
    except ValueError:
        raise FailedError(f"not JSON: {content[:80]!r}") from None
    fits = (
        isinstance(value, dict)
        and value.keys() == {"colour", "warm"}
        and value["colour"] in ("red", "green", "blue")
        and isinstance(value["warm"], bool)
    )
    must(fits, f"does not fit the schema: {content[:80]!r}")
    return json.dumps(value)


def haystack(engine: Engine) -> list[dict[str, str]]:
    """A prompt of three quarters of the promised length, the needle in its middle; measured by the engine itself."""
    wanted = engine.plan["max_model_len"] * 3 // 4 - 128
    probe = engine.chat(FILLER * 8, max_tokens=1)["usage"]["prompt_tokens"]
    sentences = max(2, int(wanted / max(1.0, probe / 8)))
    half = FILLER * (sentences // 2)
    question = "What is the code of the vault? Answer with the number alone."
    return [{"role": "user", "content": f"{half}{NEEDLE} {half}{question}"}]


def check_needle(engine: Engine) -> str:
    """A long prompt with a needle in its middle; gives the prefill rate."""
    stream = engine.stream(
        "/v1/chat/completions",
        {
            "messages": haystack(engine),
            "max_tokens": engine.budget(64),
            "chat_template_kwargs": {"enable_thinking": False},
        },
    )
    read = int(stream.usage.get("prompt_tokens", 0))
    must(stream.done, "the stream ended without [DONE]")
    must(read >= engine.plan["max_model_len"] // 2, f"only {read} tokens were read")
    engine.rates["prefill_tok_s"] = round(read / max(stream.first_s, 1e-3), 1)
    pieces = [choice["delta"].get("content") or "" for event in stream.events for choice in event.get("choices", [])]
    must(not engine.trained or "7319" in "".join(pieces), f"not found: {''.join(pieces)[:80]!r}")
    return f"{read} tokens deep prompt"


def check_prefix(engine: Engine) -> str:
    """A second turn over the same prefix comes from the cache."""
    first = haystack(engine)
    before = counter(engine.metrics(), "vllm:prefix_cache_hits_total")
    more = [{"role": "assistant", "content": "7319"}, {"role": "user", "content": "Thank you."}]
    engine.chat("", messages=[*first, *more], max_tokens=4)
    hits = counter(engine.metrics(), "vllm:prefix_cache_hits_total") - before
    must(hits > 0, "nothing came from the prefix cache")
    return f"{hits:.0f} tokens from the cache"


def check_concurrent(engine: Engine) -> str:
    """Two users at once."""
    results: list[str] = []

    def one(number: int) -> None:
        try:
            results.append(text_of(engine.chat(f"Count from {number} to {number + 5}.", max_tokens=engine.budget(48))))
        except FailedError as error:
            results.append(f"FAILED {error}")

    threads = [threading.Thread(target=one, args=(number,)) for number in (1, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    must(all(text.strip() and not text.startswith("FAILED") for text in results), str(results))
    return "both answered"


def check_loop(engine: Engine) -> str:
    """A longer answer does not repeat itself."""
    answer = text_of(engine.chat("Tell a short story about a lighthouse.", max_tokens=engine.budget(600)))
    words = answer.split()
    share = len(set(words)) / max(1, len(words))
    must(words, "the answer is empty")
    must(not re.fullmatch(r"\s*!{8,}\s*", answer), "nothing but exclamation marks: the model computes not-a-numbers")
    must(not engine.trained or share >= WORDS_DISTINCT, f"only {share:.0%} of {len(words)} words are distinct")
    return f"{share:.0%} of {len(words)} words distinct"


def check_acceptance(engine: Engine) -> str:
    """The drafter is of use: more than one token a step."""
    if engine.plan.get("speculation") is None:
        raise LeftOutError("no drafter is planned")
    page = engine.metrics()
    drafts = counter(page, "vllm:spec_decode_num_drafts_total")
    accepted = counter(page, "vllm:spec_decode_num_accepted_tokens_total")
    must(drafts > 0, "the drafter never ran")
    length = 1 + accepted / drafts
    engine.rates["acceptance_length"] = round(length, 2)
    must(length > 1, "no draft token was ever accepted")
    return f"{length:.2f} tokens a step"


def check_rate(engine: Engine) -> str:
    """Decode rate of one stream."""
    body = {"prompt": "Once upon a time", "max_tokens": DECODE_TOKENS, "ignore_eos": True}
    stream = engine.stream("/v1/completions", body)
    made = int(stream.usage.get("completion_tokens", 0))
    must(made == DECODE_TOKENS, f"{made} of {DECODE_TOKENS} tokens came")
    engine.rates["decode_tok_s"] = round((made - 1) / max(stream.last_s - stream.first_s, 1e-3), 1)
    return f"{engine.rates['decode_tok_s']} tok/s"


CHECKS: tuple[tuple[str, Callable[[Engine], str]], ...] = (
    # the first also takes the compilation of a cold start upon itself
    ("fact", check_fact),
    ("stream", check_stream),
    ("tool", check_tool),
    ("schema", check_schema),
    ("needle", check_needle),
    ("prefix", check_prefix),
    ("concurrent", check_concurrent),
    ("loop", check_loop),
    ("rate", check_rate),
    ("acceptance", check_acceptance),
)


def battery(engine: Engine) -> list[dict[str, Any]]:
    """Every check: name, `ok` (None when left out), and what came."""
    rows = []
    for name, check in CHECKS:
        started = time.monotonic()
        ok: bool | None
        try:
            ok, detail = True, check(engine)
        except LeftOutError as reason:
            ok, detail = None, str(reason)
        except FailedError as error:
            ok, detail = False, str(error)
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            ok, detail = False, f"unexpected answer: {type(error).__name__}: {error}"
        rows.append({"name": name, "ok": ok, "detail": detail, "s": round(time.monotonic() - started, 1)})
    return rows


def regressions(now: dict[str, Any], before: dict[str, Any] | None, limit_percent: float) -> list[str]:
    """Rates that fell by more than the limit since the last run of the same engine on the same plan."""
    found = []
    for name, rate in now["rates"].items():
        old = (before or {}).get("rates", {}).get(name)
        if old and rate < old * (1 - limit_percent / 100):
            found.append(f"{name} fell from {old} to {rate}")
    return found


def table(result: dict[str, Any]) -> str:
    """The result for a person."""
    marks = {True: "ok", False: "FAILED", None: "-"}
    lines = [f"engine {result['engine']}: release {result['release']}, {result['judged']}"]
    lines += [f"  {row['name']:<11} {marks[row['ok']]:<7} {row['detail']}" for row in result["checks"]]
    for name, rate in result["rates"].items():
        predicted = result["predicted"].get(name)
        lines.append(f"  {name:<18} {rate}" + (f" (plan: {predicted:.0f})" if predicted else ""))
    lines += [f"  REGRESSION  {text}" for text in result["regressions"]]
    return "\n".join(lines)


def verify(plan: dict[str, Any], settings: dict[str, Any], key: str | None, limit_percent: float) -> dict[str, Any]:
    """Run the battery against one engine and compare with its last result.

    Args:
        plan: the engine's part of plan.json.
        settings: what the engine is started with (its YAML file).
    """
    host = str(settings.get("host") or "127.0.0.1")
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    models = settings.get("served-model-name") or [settings["model"]]
    engine = Engine(plan, f"http://{name}:{plan['port']}", key, models[0], trained=bool(plan["gpus"]))
    checks = battery(engine)
    current = Path(settings["release"])
    result = {
        "engine": plan["name"],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "release": current.resolve().name,
        "driver": driver(),
        "judged": "answers judged" if engine.trained else "mechanics judged, not what a small checkpoint says",
        "checks": checks,
        "rates": engine.rates,
        "predicted": {k: v for k, v in (plan.get("predicted") or {}).items() if v is not None},
    }
    file = RESULTS / f"{plan['name']}.json"
    before = load(file)
    result["regressions"] = regressions(result, before, limit_percent)
    result["ok"] = not result["regressions"] and all(row["ok"] is not False for row in checks)
    RESULTS.mkdir(parents=True, exist_ok=True)
    if before is not None:
        file.replace(file.with_suffix(".before.json"))
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(result, indent=1) + "\n")
    fresh.rename(file)
    return result


def load(file: Path) -> dict[str, Any] | None:
    """A JSON object; None when there is none that can be read."""
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def driver() -> str | None:
    """Version of the NVIDIA module; None without one."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return None


def main(argv: list[str]) -> int:
    """Verify the engines that are named, or all of the plan."""
    parser = argparse.ArgumentParser(description="A small fixed battery against engines of this host.")
    parser.add_argument("--limit", type=float, default=20.0, help="percent by which a rate may fall")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(argv)
    plan = load(ETC / "plan.json")
    if plan is None:
        print(f"{ETC}/plan.json is missing or damaged: deploy again", file=sys.stderr)
        return 1
    key = KEY.read_text().strip() if KEY.exists() else None
    results = []
    for engine in plan["engines"]:
        if options.names and engine["name"] not in options.names:
            continue
        gate = load(ETC / "engines" / f"{engine['name']}.gate.json") or {}
        arguments = {"host": gate.get("host"), "release": gate.get("release", "/opt/qwen/current"), **served(engine)}
        results.append(verify(engine, arguments, key, options.limit))
    good = all(result["ok"] for result in results)
    print("\n".join(table(result) for result in results), file=sys.stdout if good else sys.stderr)
    return 0 if good else 1


def served(engine: dict[str, Any]) -> dict[str, Any]:
    """The names under which the engine serves, from its YAML file (a list that vLLM's settings write line by line)."""
    lines = (ETC / "engines" / f"{engine['name']}.yaml").read_text().splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith("served-model-name:")), None)
    names = []
    for line in lines[start + 1 :] if start is not None else []:
        if not line.startswith("- "):
            break
        names.append(line[2:].strip().strip("'\""))
    model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model:"))
    return {"model": model, "served-model-name": names}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

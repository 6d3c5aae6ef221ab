"""The checks, each with what it asks and what must come."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from qwenlab.remote.battery.server import Engine, FailedError, LeftOutError, must, text_of

NEEDLE = "The code of the vault is 7319."
FILLER = "The grass is green and the sky above the old town is blue today. "
WORDS_DISTINCT = 0.30  # a looping answer repeats itself; club-3090's bound for 2,000 tokens
DECODE_TOKENS = 64
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
    """A prompt of three quarters of the promised length, the needle in its middle; measured by the engine itself.

    It begins with what no earlier run began with: the prefix cache would make the prefill rate of a second run up.
    """
    wanted = engine.plan["max_model_len"] * 3 // 4 - 128
    probe = engine.chat(FILLER * 8, max_tokens=1)["usage"]["prompt_tokens"]
    sentences = max(2, int(wanted / max(1.0, probe / 8)))
    half = FILLER * (sentences // 2)
    question = "What is the code of the vault? Answer with the number alone."
    return [{"role": "user", "content": f"{engine.salt}. {half}{NEEDLE} {half}{question}"}]


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
    before = engine.count("vllm:prefix_cache_hits_total")
    more = [{"role": "assistant", "content": "7319"}, {"role": "user", "content": "Thank you."}]
    engine.chat("", messages=[*first, *more], max_tokens=4)
    hits = engine.count("vllm:prefix_cache_hits_total") - before
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
    drafts = engine.count("vllm:spec_decode_num_drafts_total")
    accepted = engine.count("vllm:spec_decode_num_accepted_tokens_total")
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

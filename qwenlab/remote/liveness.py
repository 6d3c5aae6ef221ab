"""Is a running engine still of use? Asked again and again while it serves; imported by engine.py.

An engine that answers /health may generate nothing, or nonsense. The watch asks for a few tokens. When they come, it
tells systemd's watchdog; when they do not, it tells it only if the engine's own counters show that it works for others
(a long prompt may keep a short one waiting). So a stalled engine misses WatchdogSec= and is restarted. Nonsense twice
in a row (`!!!!`: what a sampler makes of not-a-number) triggers the watchdog at once. Standard library only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

QUESTION = {"prompt": "The capital of France is", "max_tokens": 12, "temperature": 0}
DEGENERATE = re.compile(r"\s*!{8,}\s*")
NONSENSE_LIMIT = 2
COUNTERS = re.compile(r"^vllm:(?:generation|prompt)_tokens_total(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)


@dataclass
class Watch:
    """One engine under watch.

    Attributes:
        ask: the engine's answer to a completion request, None when it failed or took too long.
        metrics: text of /metrics, empty when it did not answer.
        notify: sends a message to systemd (sd_notify(3)).
        alive: whether the engine's process runs.
    """

    model: str
    ask: Callable[[dict[str, Any]], dict[str, Any] | None]
    metrics: Callable[[], str]
    notify: Callable[[str], None]
    alive: Callable[[], bool]
    pause: Callable[[float], None] = time.sleep
    nonsense: int = field(default=0, init=False)
    tokens: float = field(default=-1.0, init=False)

    def run(self, interval_s: float) -> None:
        """Look every `interval_s` seconds until the engine is gone or given up."""
        while self.alive():
            if not self.look():
                return
            self.pause(interval_s)

    def look(self) -> bool:
        """One look; False when the engine was given up."""
        answer = self.ask({"model": self.model, **QUESTION})
        text = first_text(answer)
        if text is not None and not DEGENERATE.fullmatch(text):
            self.nonsense = 0
            self.notify("WATCHDOG=1")
            return True
        if text is not None:
            self.nonsense += 1
            print(f"liveness: degenerate output {text!r} ({self.nonsense} in a row)", flush=True)
            if self.nonsense >= NONSENSE_LIMIT:
                self.notify("STATUS=degenerate output: restarting\nWATCHDOG=trigger")
                return False
            self.notify("WATCHDOG=1")
            return True
        if self.progressed():
            print("liveness: no answer in time, but the engine works for others", flush=True)
            self.notify("WATCHDOG=1")
        else:
            print("liveness: no answer, and no token was generated since the last look", flush=True)
            self.notify("STATUS=not generating: will be restarted unless it recovers")
        return True

    def progressed(self) -> bool:
        """Whether prompts were read or tokens made since the last question to the counters."""
        now = token_count(self.metrics())
        before, self.tokens = self.tokens, now
        return now > before >= 0


def first_text(answer: dict[str, Any] | None) -> str | None:
    """The text of a completion; None when there is none."""
    choices = (answer or {}).get("choices") or []
    text = choices[0].get("text") if choices else None
    return text if text else None


def token_count(metrics: str) -> float:
    """Tokens read and made so far; -1 when the counters are not there."""
    values = [float(value) for value in COUNTERS.findall(metrics)]
    return sum(values) if values else -1.0

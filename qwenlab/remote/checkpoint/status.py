"""How far a fetch is: a small file, renewed twice a second, that the control machine reads."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from pathlib import Path

EVERY_S = 0.5


class Status:
    """Counts bytes; safe to use from several threads.

    States: running, done, failed. A fetch whose unit has ended while its state is `running` was killed.
    """

    def __init__(self, path: Path, deploy: str = "") -> None:
        self._path, self._deploy = path, deploy
        self._lock = threading.Lock()
        self._written = 0.0
        self.state, self.phase, self.message = "running", "starting", ""
        self.done = self.total = 0

    def say(self, phase: str, message: str = "") -> None:
        """Enter a phase: waiting, listing, fetching, verifying, preparing."""
        with self._lock:
            self.phase, self.message = phase, message
            self._write()
        print(f"{phase}{': ' if message else ''}{message}", flush=True)

    def note(self, message: str) -> None:
        """A remark for the unit's journal; the phase stays as it is."""
        print(message, flush=True)

    def expect(self, total: int, done: int = 0) -> None:
        """Begin to count towards `total` bytes."""
        with self._lock:
            self.total, self.done = total, done
            self._write()

    def add(self, count: int) -> None:
        """Bytes that have arrived; a negative number takes some back."""
        with self._lock:
            self.done += count
            if time.monotonic() - self._written >= EVERY_S:
                self._write()

    def end(self, state: str, message: str) -> None:
        """The last word: done or failed."""
        with self._lock:
            self.state, self.message = state, message
            self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        text = json.dumps(
            {
                "state": self.state,
                "phase": self.phase,
                "message": self.message,
                "done": self.done,
                "total": self.total,
                "deploy": self._deploy,
            }
        )
        fresh = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError):  # a full disk shows in the fetch itself, which has the words for it
            fresh.write_text(text + "\n")
            fresh.rename(self._path)

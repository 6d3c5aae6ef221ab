"""One file: resumed at the byte it had reached, digested while it is written, patient with a server in trouble."""

from __future__ import annotations

import http.client
import os
import threading
import time
import urllib.error
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TypeVar

from qwenlab.remote.checkpoint.files import Digests, FileEntry, Hasher, read_into
from qwenlab.remote.checkpoint.refusals import refusal_of
from qwenlab.remote.checkpoint.transport import Transport
from qwenlab.remote.checkpoint.words import DigestError

LONGEST_PAUSE_S = 60.0
WRONG_CONTENTS = 3  # times that a file may arrive with another digest
PASSING = (408, 425, 429, 500, 502, 503, 504)  # statuses that a later request may not meet
Result = TypeVar("Result")


@dataclass(frozen=True)
class Patience:
    """How often in a row a request may fail, and the pause after the first failure in seconds; it doubles."""

    attempts: int = 6
    backoff_s: float = 1.0

    def pause(self, failures: int, error: BaseException) -> float:
        """Seconds to wait after so many failures; what the server asks for (Retry-After) counts when it is longer."""
        own = self.backoff_s * 2.0 ** (failures - 1)
        return min(max(own, retry_after_s(error)), LONGEST_PAUSE_S)

    def persist(self, call: Callable[[], Result]) -> Result:
        """Call until it succeeds, fails for good, or has failed `attempts` times."""
        failures = 0
        while True:
            try:
                return call()
            except Exception as error:
                failures += 1
                if failures >= self.attempts or not passing(error):
                    raise
                time.sleep(self.pause(failures, error))


def passing(error: BaseException) -> bool:
    """Whether another try may succeed: the network, or a server in trouble; not the disk, not a refusal."""
    refusal = refusal_of(error)
    if refusal is not None:
        return refusal.status in PASSING
    if isinstance(error, http.client.HTTPException | TimeoutError | ConnectionError | urllib.error.URLError):
        return True
    return type(error).__name__ in ("ConnectError", "ConnectTimeout", "ReadTimeout", "ReadError", "RemoteProtocolError")


def retry_after_s(error: BaseException) -> float:
    """Seconds that the server asks to wait (RFC 9110 10.2.3: a number or a date); 0 when it does not say."""
    refusal = refusal_of(error)
    header = refusal.retry_after if refusal is not None else None
    if not header:
        return 0.0
    with suppress(ValueError):
        return float(header)
    with suppress(ValueError, TypeError):
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    return 0.0


@dataclass
class Download:
    """A file on its way.

    Attributes:
        transport: the way that it comes.
        target: final name; it grows under `<name>.incomplete` beside it.
        entry: size and digest that it must have.
        count: told of bytes that arrived or, negative, that must come again.
        stop: set when another file has failed for good.
    """

    transport: Transport
    target: Path
    entry: FileEntry
    count: Callable[[int], None]
    patience: Patience
    stop: threading.Event

    def run(self) -> Digests:
        """Fetch, verify, give it its name.

        Raises:
            DigestError: the content was wrong three times.
            HubStatusError: the server refuses.
            OSError: disk or network.
        """
        self.target.parent.mkdir(parents=True, exist_ok=True)
        incomplete = self.target.with_name(f"{self.target.name}.incomplete")
        for _ in range(WRONG_CONTENTS):
            digests = self._complete(incomplete)
            if self.entry.same_content(digests):
                incomplete.replace(self.target)
                return digests
            self.count(-digests.size)
            incomplete.unlink()
            self.transport.wrong(self.entry)
        raise DigestError(
            f"{self.entry.path} arrived {WRONG_CONTENTS} times with another content than announced: something "
            "between this host and the source changes it (a proxy or mirror?), or the source is damaged; nothing of it "
            "was kept."
        )

    def _complete(self, incomplete: Path) -> Digests:
        hasher = Hasher.of(self.entry)
        with incomplete.open("ab", buffering=0) as handle:
            if handle.tell() > self.entry.size:
                handle.truncate(0)
            elif handle.tell():
                read_into(incomplete, hasher)
            self.count(hasher.size)
            failures = 0
            while hasher.size < self.entry.size:
                before = hasher.size
                try:
                    self._append(handle.fileno(), hasher)
                except Exception as error:
                    failures = 1 if hasher.size > before else failures + 1
                    if failures >= self.patience.attempts or not passing(error) or self.stop.is_set():
                        raise
                    self.stop.wait(self.patience.pause(failures, error))
            os.fsync(handle.fileno())
        return hasher.digests()

    def _append(self, descriptor: int, hasher: Hasher) -> None:
        """Ask for what is missing and write what comes. The hasher tells at any time what the file holds."""
        with self.transport.open(self.entry, hasher.size) as (begin, pieces):
            if begin != hasher.size:
                self.count(-hasher.size)
                os.ftruncate(descriptor, 0)
                hasher.restart()
            for piece in pieces:
                part = piece[: self.entry.size - hasher.size]
                write_all(descriptor, part)
                hasher.update(part)
                self.count(len(part))
                if self.stop.is_set():
                    raise InterruptedError("another file of the checkpoint could not be fetched")
                if hasher.size == self.entry.size:
                    break
        if hasher.size < self.entry.size:
            raise http.client.IncompleteRead(b"", self.entry.size - hasher.size)


def write_all(descriptor: int, data: memoryview) -> None:
    """write(2) until everything is written: it may take less, as on a disk that fills up."""
    while data:
        data = data[os.write(descriptor, data) :]

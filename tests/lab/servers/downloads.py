"""Files fetched once and kept: many clients may read one while it is still arriving."""

from __future__ import annotations

import hashlib
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.response import addinfourl

_CHUNK = 256 << 10
_TIMEOUT = 60.0  # seconds without a byte
AGENT = "qwenlab-lab-index"


class UpstreamError(Exception):
    """The address behind a file or page does not give it; `status` is what to tell the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def open_url(url: str, accept: str = "*/*") -> addinfourl:
    """GET `url` through this machine's proxy settings and certificates."""
    request = urllib.request.Request(url, headers={"User-Agent": AGENT, "Accept": accept})
    try:
        response: addinfourl = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        raise UpstreamError(error.code, f"{url}: {error}") from None
    except OSError as error:
        raise UpstreamError(502, f"{url}: {error}") from None
    return response


@dataclass
class _Arrival:
    """A file on its way."""

    total: int | None = None
    arrived: int = 0
    error: UpstreamError | None = None
    done: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)


class Downloads:
    """A directory of fetched files, each under the hash of its address."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._arrivals: dict[str, _Arrival] = {}
        self._lock = threading.Lock()

    def kept(self, url: str) -> Path | None:
        """The complete file, when it is here."""
        path = self._place(url)
        return path if path.exists() else None

    def read(self, url: str) -> tuple[int | None, Iterator[bytes]]:
        """Size (None when unknown) and content of the file behind `url`, fetched now unless it is here.

        Raises:
            UpstreamError: it cannot be had. When the connection breaks later, the iterator raises it.
        """
        if kept := self.kept(url):
            return kept.stat().st_size, _file(kept)
        with self._lock:
            arrival = self._arrivals.get(url)
            if arrival is None:
                arrival = self._arrivals[url] = _Arrival()
                threading.Thread(target=self._fetch, args=(url, arrival), name=f"fetch {url}", daemon=True).start()
        with arrival.changed:
            arrival.changed.wait_for(lambda: arrival.arrived > 0 or arrival.done or arrival.error is not None)
            if arrival.error:
                raise arrival.error
        return arrival.total, self._follow(url, arrival)

    def _place(self, url: str) -> Path:
        digest = hashlib.sha256(url.encode()).hexdigest()
        return self._directory / digest[:2] / digest

    def _partial(self, url: str) -> Path:
        return self._place(url).with_suffix(f".{id(self):x}.part")

    def _fetch(self, url: str, arrival: _Arrival) -> None:
        partial = self._partial(url)
        partial.parent.mkdir(parents=True, exist_ok=True)
        error: UpstreamError | None = None
        try:
            with open_url(url) as response, partial.open("wb") as handle:
                length = response.headers.get("Content-Length")
                arrival.total = int(length) if length else None
                while chunk := response.read(_CHUNK):
                    handle.write(chunk)
                    handle.flush()
                    with arrival.changed:
                        arrival.arrived += len(chunk)
                        arrival.changed.notify_all()
            if arrival.total is not None and arrival.arrived != arrival.total:
                raise UpstreamError(502, f"{url}: {arrival.arrived} of {arrival.total} bytes")
            partial.replace(self._place(url))
        except UpstreamError as failure:
            error = failure
        except OSError as failure:
            error = UpstreamError(502, f"{url}: {failure}")
        with self._lock:
            self._arrivals.pop(url, None)
        with arrival.changed:
            arrival.error, arrival.done = error, error is None
            arrival.changed.notify_all()
        partial.unlink(missing_ok=True)

    def _follow(self, url: str, arrival: _Arrival) -> Iterator[bytes]:
        # The handle stays good when the partial file gets its final name.
        path = self._partial(url) if not arrival.done else self._place(url)
        try:
            handle = path.open("rb")
        except FileNotFoundError:
            handle = self._place(url).open("rb")
        with handle:
            while True:
                if chunk := handle.read(_CHUNK):
                    yield chunk
                    continue
                with arrival.changed:
                    arrival.changed.wait_for(
                        lambda: arrival.done or arrival.error is not None or arrival.arrived > handle.tell()
                    )
                    if arrival.error:
                        raise arrival.error
                    if arrival.done and arrival.arrived <= handle.tell():
                        return

    def forget(self) -> None:
        """Remove every kept file."""
        shutil.rmtree(self._directory, ignore_errors=True)


def _file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            yield chunk

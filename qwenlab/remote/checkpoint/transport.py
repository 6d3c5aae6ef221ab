"""Ways that a file's bytes come: plain HTTP ranges, and Xet storage where the hub has the file there.

Both begin at any byte, so a fetch that was stopped goes on where it was whichever way it takes then. hf-xet is used as
a stream and not as `hf_hub_download` uses it: that one starts a file from its first byte after every interruption
(huggingface_hub 2.4 file_download.py, a temporary name per process).
"""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from huggingface_hub import get_hf_file_metadata

from qwenlab.remote.checkpoint.files import FileEntry
from qwenlab.remote.checkpoint.refusals import HubStatusError, Refusal

NETWORK_CHUNK = 512 << 10  # bytes
TIMEOUT_S = 60.0  # without a byte
Stream = tuple[int, Iterator[memoryview]]


class Transport(Protocol):
    """Where files come from."""

    def open(self, entry: FileEntry, begin: int) -> AbstractContextManager[Stream]:
        """A file's bytes, and the place where they begin: `begin`, or 0 where the source cannot do that."""

    def wrong(self, entry: FileEntry) -> None:
        """The content that came was another than announced: take another way where there is one."""


class Ranges:
    """Plain HTTP. `url` tells a file's address; redirects are followed, without the token."""

    def __init__(self, url: Callable[[FileEntry], str], token: str | None) -> None:
        self._url, self._token = url, token

    @contextmanager
    def open(self, entry: FileEntry, begin: int) -> Iterator[Stream]:
        """Ask for the rest of the file. Raises HubStatusError, or urllib's and the socket's errors."""
        request = urllib.request.Request(self._url(entry))
        request.add_header("Accept-Encoding", "identity")
        if begin:
            request.add_header("Range", f"bytes={begin}-")
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            with error:
                raise HubStatusError(refusal(error, request.full_url)) from None
        with response:
            yield (begin if response.status == 206 else 0), pieces(response)

    def wrong(self, entry: FileEntry) -> None:
        """There is no other way."""


def refusal(error: urllib.error.HTTPError, asked: str) -> Refusal:
    """What was answered, and by whom: redirects lead from the hub to a storage."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(error.url))
    code, said, retry = (error.headers.get(name) for name in ("X-Error-Code", "X-Error-Message", "Retry-After"))
    return Refusal(error.code, code, said, None if asked.startswith(f"{origin}/") else origin, retry)


def pieces(response: http.client.HTTPResponse) -> Iterator[memoryview]:
    """What is there, without waiting for more: little is lost when the process is killed."""
    while part := response.read1(NETWORK_CHUNK):
        yield memoryview(part)


class XetFirst:
    """Xet storage for files that the hub has there, plain HTTP for others and once Xet has failed.

    Args:
        plain: the other way.
        url: as given to that.
        endpoint, token: of the hub.
        buffer: bytes that hf-xet may hold that are not written yet; they come again after a kill.
        say: told why Xet is left.
    """

    def __init__(
        self,
        plain: Ranges,
        url: Callable[[FileEntry], str],
        endpoint: str,
        token: str | None,
        buffer: int,
        say: Callable[[str], None],
    ) -> None:
        self._plain, self._url, self._endpoint, self._token = plain, url, endpoint, token
        self._buffer, self._say = buffer, say
        self._lock = threading.Lock()
        self._group: Any = None
        self._left = False
        self._not_this_way: set[str] = set()

    def open(self, entry: FileEntry, begin: int) -> AbstractContextManager[Stream]:
        """The file from `begin` on. An error of Xet's is one of the network: the next try takes plain HTTP."""
        # small files, which have a git blob id, are in no Xet storage: not even asked for
        if self._left or entry.git_blob is not None or entry.path in self._not_this_way:
            return self._plain.open(entry, begin)
        try:
            found = get_hf_file_metadata(self._url(entry), endpoint=self._endpoint, token=self._token or False)
            stored = found.xet_file_data
            if stored is None:
                self._not_this_way.add(entry.path)
                return self._plain.open(entry, begin)
            return self._opened(self._start(entry, begin, stored.file_hash, stored.refresh_route), begin)
        except Exception as error:  # the hub's refusals too: plain HTTP meets the same one, and there are words for it
            self._leave(error)
            return self._plain.open(entry, begin)

    def wrong(self, entry: FileEntry) -> None:
        """Plain HTTP for this file from now on."""
        self._not_this_way.add(entry.path)

    def _start(self, entry: FileEntry, begin: int, name: str, refresh: str) -> Any:
        from hf_xet import XetFileInfo

        return self._downloads(refresh).download_stream(XetFileInfo(name, entry.size), start=begin)

    @contextmanager
    def _opened(self, stream: Any, begin: int) -> Iterator[Stream]:
        try:
            yield begin, self._guarded(stream)
        finally:
            stream.cancel()

    def _guarded(self, stream: Iterator[bytes]) -> Iterator[memoryview]:
        while True:
            try:
                piece = next(stream)
            except StopIteration:
                return
            except Exception as error:  # hf-xet's errors have no common class
                self._leave(error)
                raise ConnectionError(f"Xet storage: {error}") from error
            yield memoryview(piece)

    def _downloads(self, refresh: str) -> Any:
        from hf_xet import XetConfig, XetSession

        with self._lock:
            if self._group is None:
                headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
                session = XetSession(XetConfig().with_config(limits(self._buffer)))
                self._group = session.new_download_stream_group(
                    token_refresh_url=refresh, token_refresh_headers=headers
                )
            return self._group

    def _leave(self, error: Exception) -> None:
        with self._lock:
            if not self._left:
                self._left = True
                self._say(f"Xet storage does not work ({error}): going on over plain HTTP")


def limits(buffer: int) -> dict[str, object]:
    """hf-xet's settings: what it holds ahead of us, and how long it tries before plain HTTP gets its turn.

    By default it holds up to 6 GB (hf-xet 1.8 `reconstruction.download_buffer_limit`), which ten kills would fetch ten
    times more often than once.
    """
    return {
        "reconstruction.download_buffer_size": buffer,
        "reconstruction.download_buffer_perfile_size": 0,
        "reconstruction.download_buffer_limit": buffer,
        "reconstruction.min_prefetch_buffer": buffer,
        "reconstruction.min_reconstruction_fetch_size": buffer,
        "client.retry_max_attempts": 3,
        "client.retry_base_delay": "1s",
        "client.connect_timeout": "20s",
        "client.read_timeout": f"{TIMEOUT_S:.0f}s",
        "telemetry.enabled": False,
    }

"""The ground that the lab's HTTP servers stand on: threads, keep-alive, ranges, and a stop that really stops."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True)
class ByteRange:
    """A part of a body: bytes `first` to `last`, both included, of `total`."""

    first: int
    last: int
    total: int

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.last - self.first + 1

    def header(self) -> str:
        """Value of `Content-Range`."""
        return f"bytes {self.first}-{self.last}/{self.total}"


class RangeNotSatisfiable(ValueError):
    """The range asked for begins beyond the end (RFC 9110 15.5.17)."""


def parse_range(header: str | None, total: int) -> ByteRange | None:
    """The part that a `Range` header asks for, None for the whole (RFC 9110 14.2; only single ranges are honoured)."""
    if not header or not header.startswith("bytes=") or "," in header:
        return None
    first, _, last = header.removeprefix("bytes=").strip().partition("-")
    if not first:
        begin, end = max(total - int(last), 0), total - 1
    else:
        begin, end = int(first), min(int(last), total - 1) if last else total - 1
    if begin >= total or begin > end:
        raise RangeNotSatisfiable(header)
    return ByteRange(begin, end, total)


class Handler(BaseHTTPRequestHandler):
    """A request; hands itself to the server's `answer`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    @property
    def route(self) -> str:
        """Path of the request, percent-decoded, without query."""
        return unquote(urlsplit(self.path).path)

    @property
    def query(self) -> str:
        """Query of the request as sent."""
        return urlsplit(self.path).query

    def do_GET(self) -> None:
        """Answer GET."""
        self.server.answer(self)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Answer POST; its body, which no answer depends on, must not be taken for the next request."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.answer(self)

    def reply(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, content_type: str = "text/plain"
    ) -> None:
        """Send a whole answer (headers only for HEAD)."""
        self.send_response(status)
        fields = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def break_connection(self, *, orderly: bool = False) -> None:
        """End the connection in the middle of an answer: by a reset (RST), or by an orderly close (FIN)."""
        self.wfile.flush()
        if not orderly:
            linger = struct.pack("ii", 1, 0)  # on, for 0 seconds: close() then sends a reset
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        if not orderly:
            self.connection.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet: the servers count what tests ask about."""


class Server(ThreadingHTTPServer):
    """An HTTP server in threads of this process."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, answer: Callable[[Handler], None], port: int = 0) -> None:
        self.answer = answer
        self._open: set[socket.socket] = set()
        super().__init__((address, port), Handler)

    @property
    def url(self) -> str:
        """`http://address:port`."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Serve within; afterwards the port is closed and every open connection is gone."""
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, name=self.url, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            self.server_close()
            thread.join()
            for connection in list(self._open):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Remember the connection, so that a stop can close it."""
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection."""
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away in the middle of an answer are part of the tests; anything else is told."""
        if not isinstance(sys.exception(), OSError | ValueError):
            super().handle_error(request, client_address)

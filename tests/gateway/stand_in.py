"""A server in the shape of an engine: answers when it is told to, streams token by token, tells what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_S = 20.0


@dataclass
class StandIn:
    """One engine.

    Attributes:
        name: comes back in every answer.
        go: a held answer, and the second token of a stream, wait for it.
        asked: path and headers, names in lower case, of each request but the health checks.
        holding: grows with each request that waits for `go`.
        gone: set when a client went away while its answer was held.
    """

    name: str
    port: int = 0
    go: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    holding: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    gone: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[StandIn]:
        """Listens on loopback, at `port` if that is set."""
        server = _Server(("127.0.0.1", self.port), _handler(self))
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.go.set()
            server.shutdown()
            server.server_close()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away: nothing to say."""


def _handler(engine: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path != "/health":
                engine.asked.append((self.path, self._headers()))
            if self.path == "/metrics":
                self._send("text/plain; version=0.0.4", f'vllm:num_requests_running{{engine="{engine.name}"}} 3\n')
            else:
                self._answer({"engine": engine.name})

        def do_POST(self) -> None:
            engine.asked.append((self.path, self._headers()))
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", "0"))) or b"{}")
            if body.get("die"):
                self.close_connection = True
            elif body.get("stream"):
                self._stream()
            elif body.get("hold"):
                self._hold()
            else:
                self._answer({"engine": engine.name})

        def _headers(self) -> dict[str, str]:
            return {name.lower(): ", ".join(self.headers.get_all(name, [])) for name in self.headers}

        def _hold(self) -> None:
            engine.holding.release()
            self.connection.settimeout(0.02)
            for _ in range(int(PATIENCE_S / 0.02)):
                if engine.go.is_set():
                    break
                try:
                    if self.connection.recv(1) == b"":
                        engine.gone.set()
                        self.close_connection = True
                        return
                except TimeoutError:
                    continue
                except OSError:
                    engine.gone.set()
                    self.close_connection = True
                    return
            self.connection.settimeout(None)
            self._answer({"engine": engine.name})

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._chunk("data: one\n\n")
            engine.holding.release()
            engine.go.wait(PATIENCE_S)
            self._chunk("data: two\n\n")
            self._chunk("")

        def _chunk(self, text: str) -> None:
            self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
            self.wfile.flush()

        def _answer(self, body: dict[str, Any]) -> None:
            self._send("application/json", json.dumps(body))

        def _send(self, kind: str, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler

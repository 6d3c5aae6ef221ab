"""The repository over HTTP, on the lab's side of the network, with faults that tests switch on."""

from __future__ import annotations

import contextlib
import tempfile
import threading
from dataclasses import dataclass, replace
from email.utils import formatdate
from fnmatch import fnmatch
from pathlib import Path
from typing import Self

from tests.lab.apt_repository import kernel_packages, keys, layout
from tests.lab.apt_repository.layout import REPOS, Variant
from tests.lab.servers.http import Handler, RangeNotSatisfiable, Server, parse_range
from tests.lab.servers.log import RequestLog

KERNEL = "kernel"


@dataclass(frozen=True)
class Fault:
    """What goes wrong with requests whose path matches the glob `paths`, `times` times (None: until cleared).

    Attributes:
        status: answer with this status.
        reset_at: break the connection when this byte of the file is due.
        corrupt: turn over one bit in the middle of the file.
    """

    paths: str = "*"
    times: int | None = None
    status: int | None = None
    reset_at: int | None = None
    corrupt: bool = False


class RepositoryServer:
    """Builds and serves every variant for the distributions asked for; variants are built when first asked for.

    `requests` holds the paths asked for, in order. `stop_listening` and `listen_again` take the whole server down.
    """

    def __init__(self, address: str = "127.0.0.1", distributions: tuple[str, ...] = ("debian12", "debian13")) -> None:
        self.address = address
        self.distributions = distributions
        self.requests: RequestLog[str] = RequestLog()
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._stack = contextlib.ExitStack()
        self._listening = contextlib.ExitStack()
        self._port = 0
        self._keys: dict[str, keys.SigningKey] = {}

    def __enter__(self) -> Self:
        self._root = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="qwenlab-apt-")))
        self._stack.callback(keys.stop_agent, self._root / "gnupg")
        self.listen_again()
        self._stack.callback(self.stop_listening)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def url(self, variant: Variant = Variant.GOOD) -> str:
        """Address of `.../compute/cuda/repos` of a variant; a distribution's directory lies below."""
        self._ensure(variant)
        return f"{self._base}/{variant}/{REPOS}"

    def kernel_url(self) -> str:
        """Address of the flat repository with headers and image of this machine's kernel (see kernel_packages)."""
        folder = self._root / KERNEL
        with self._lock:
            if not folder.exists():
                kernel_packages.write(folder, self._key("good"))
        return f"{self._base}/{KERNEL}"

    def fingerprint(self, variant: Variant = Variant.GOOD) -> str:
        """Fingerprint of the key that signs a variant, 40 hex digits."""
        return self._variant_key(variant).fingerprint

    def public_key(self, variant: Variant = Variant.GOOD) -> bytes:
        """That key, binary."""
        return self._variant_key(variant).public

    def set_faults(self, *faults: Fault) -> None:
        """Fail in these ways from now on; without arguments all is well again."""
        with self._lock:
            self._faults = list(faults)

    def stop_listening(self) -> None:
        """Down: connections are refused."""
        self._listening.close()

    def listen_again(self) -> None:
        """Up again, on the same port."""
        server = Server(self.address, self._answer, self._port)
        self._port = int(server.server_address[1])
        self._base = server.url
        self._listening.enter_context(server.running())

    def _ensure(self, variant: Variant) -> None:
        top = self._root / variant
        with self._lock:
            if top.exists():
                return
            key = self._variant_key(variant)
            for distribution in self.distributions:
                family, _ = layout.DISTRIBUTIONS[distribution]
                pool = self._root / "pool" / f"{variant}-{'ubuntu' if family.ubuntu else 'debian'}"
                if not pool.exists():
                    layout.write_packages(pool, family, variant)
                folder = top / REPOS / distribution / layout.ARCHITECTURE
                base = f"{self._base}/{variant}/{REPOS}"
                layout.write_directory(folder, pool, distribution, key, base, variant is not Variant.UNSIGNED)

    def _variant_key(self, variant: Variant) -> keys.SigningKey:
        return self._key({Variant.EXPIRED_KEY: "expired", Variant.SHA1_KEY: "sha1"}.get(variant, "good"))

    def _key(self, kind: str) -> keys.SigningKey:
        makers = {"good": keys.good, "expired": keys.expired, "sha1": keys.sha1}
        if kind not in self._keys:
            self._keys[kind] = makers[kind](self._root / "gnupg")
        return self._keys[kind]

    def _fault(self, path: str) -> Fault | None:
        with self._lock:
            for place, fault in enumerate(self._faults):
                if fault.times != 0 and fnmatch(path, fault.paths):
                    if fault.times is not None:
                        self._faults[place] = replace(fault, times=fault.times - 1)
                    return fault
        return None

    def _answer(self, handler: Handler) -> None:
        path = self.requests.add(handler.route)
        fault = self._fault(path)
        if fault and fault.status:
            handler.reply(fault.status, b"the simulated repository fails\n")
            return
        file = (self._root / path.lstrip("/")).resolve()
        served = [self._root / KERNEL, *(self._root / variant for variant in Variant)]
        if not file.is_file() or not any(file.is_relative_to(folder) for folder in served):
            handler.reply(404, b"not found\n")
            return
        content = file.read_bytes()
        if fault and fault.corrupt:
            middle = len(content) // 2
            content = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        modified = {"Last-Modified": formatdate(file.stat().st_mtime, usegmt=True), "Accept-Ranges": "bytes"}
        if handler.headers.get("If-Modified-Since") == modified["Last-Modified"]:
            handler.reply(304)
            return
        self._send(handler, content, modified, fault)

    def _send(self, handler: Handler, content: bytes, headers: dict[str, str], fault: Fault | None) -> None:
        try:
            part = parse_range(handler.headers.get("Range"), len(content))
        except RangeNotSatisfiable:
            handler.reply(416, headers={"Content-Range": f"bytes */{len(content)}"})
            return
        first = part.first if part else 0
        body = content[first : part.last + 1] if part else content
        handler.send_response(206 if part else 200)
        for name, value in {**headers, **({"Content-Range": part.header()} if part else {})}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        cut = fault.reset_at - first if fault and fault.reset_at is not None else None
        if cut is not None and cut < len(body):
            handler.wfile.write(body[: max(cut, 0)])
            handler.break_connection()
            return
        handler.wfile.write(body)

"""A package index for lab hosts: a cache in front of the index that this machine uses, and this machine's wheels.

    /simple/<project>/   the project as the upstream index lists it; files come through the cache
    /extra/<project>/    an additional index: wheels from this machine's find-links folders, for projects without
                         one the additional upstream (PyTorch's CPU builds, which PyPI does not have)
    /wheels/             a find-links page of those folders

Upstream is what pip and uv would use here (`PIP_INDEX_URL`, `UV_DEFAULT_INDEX`, `PIP_FIND_LINKS`, `UV_FIND_LINKS`).
Big wheels are fetched once for a machine, and a test can take the index down or wait for a request.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from packaging.utils import canonicalize_name

from tests.lab.cache import cache_directory
from tests.lab.servers import simple_api
from tests.lab.servers.downloads import Downloads, UpstreamError, open_url
from tests.lab.servers.http import Handler, RangeNotSatisfiable, Server, parse_range
from tests.lab.servers.log import RequestLog
from tests.lab.servers.simple_api import IndexFile

PYPI = "https://pypi.org/simple"
PYTORCH_CPU = "https://download.pytorch.org/whl/cpu"
PAGE_LIFE = 3600.0  # seconds until a page is asked for again


@dataclass(frozen=True)
class Request:
    """A request: its path, decoded, and the file name it ends in (empty for pages)."""

    path: str
    file: str


def upstream(environment: Mapping[str, str] = os.environ) -> str:
    """The package index that pip or uv would use on this machine."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if environment.get(name):
            return environment[name].rstrip("/")
    return PYPI


def find_links(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Folders of wheels that pip or uv would also look into on this machine."""
    named = [
        part for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS") for part in re.split(r"[\s,]+", environment.get(name, ""))
    ]
    folders = [Path(unquote(urlsplit(part).path)) if part.startswith("file:") else Path(part) for part in named if part]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


class PackageIndex:
    """The index; `with PackageIndex(address).running() as index:` serves it.

    Attributes:
        failing: answer everything with this status (503 for an index that is down); None to work.
        log: requests so far.
    """

    def __init__(self, address: str = "127.0.0.1", port: int = 0, directory: Path | None = None) -> None:
        self.failing: int | None = None
        self.log: RequestLog[Request] = RequestLog()
        place = directory or cache_directory() / "index"
        self._files = Downloads(place / "files")
        self._pages = place / "pages"
        self._server = Server(address, self._answer, port)
        self._upstreams = {"simple": upstream(), "extra": PYTORCH_CPU}
        self._unreachable: set[str] = set()
        self._wheels = {path.name: path for folder in find_links() for path in sorted(folder.glob("*.whl"))}

    @property
    def url(self) -> str:
        """Address of the main index (for `--default-index`)."""
        return f"{self._server.url}/simple"

    @property
    def extra_url(self) -> str:
        """Address of the additional index (for `--index`)."""
        return f"{self._server.url}/extra"

    @property
    def find_links_url(self) -> str:
        """Address of the find-links page."""
        return f"{self._server.url}/wheels/"

    @contextmanager
    def running(self) -> Iterator[PackageIndex]:
        """Serve within."""
        with self._server.running():
            yield self

    def _answer(self, handler: Handler) -> None:
        parts = handler.route.strip("/").split("/")
        self.log.add(Request(handler.route, parts[-1] if parts[0] in ("files", "local") else ""))
        if self.failing is not None:
            handler.reply(self.failing, b"the package index is down\n")
            return
        try:
            self._route(handler, parts)
        except UpstreamError as error:
            handler.reply(error.status, f"{error}\n".encode())

    def _route(self, handler: Handler, parts: list[str]) -> None:
        match parts:
            case [("simple" | "extra") as index, project]:
                files = self._listing(index, canonicalize_name(project))
                self._page(handler, project, files)
            case ["wheels"]:
                self._page(handler, "wheels", [self._local(path) for path in self._wheels.values()])
            case ["files", address, name]:
                url = base64.urlsafe_b64decode(address).decode()
                self._send(handler, url + (".metadata" if name.endswith(".metadata") else ""))
            case ["local", name] if name in self._wheels:
                _send_file(handler, self._wheels[name])
            case _:
                handler.reply(404, b"not found\n")

    def _page(self, handler: Handler, project: str, files: list[IndexFile]) -> None:
        content_type, body = simple_api.write(project, files, handler.headers.get("Accept", ""))
        handler.reply(200, body, content_type=content_type)

    def _listing(self, index: str, project: str) -> list[IndexFile]:
        wheels = [path for name, path in self._wheels.items() if canonicalize_name(name.split("-")[0]) == project]
        if index == "extra" and wheels:
            return [self._local(path) for path in wheels]
        files = self._upstream_page(self._upstreams[index], project)
        return [file.at(self._through_cache(file)) for file in files]

    def _local(self, path: Path) -> IndexFile:
        digest = _sha256(path, path.stat().st_mtime_ns)
        address = f"{self._server.url}/local/{quote(path.name)}"
        return IndexFile(path.name, address, digest, size=path.stat().st_size)

    def _through_cache(self, file: IndexFile) -> str:
        address = base64.urlsafe_b64encode(file.url.encode()).decode()
        return f"{self._server.url}/files/{address}/{quote(file.name)}"

    def _upstream_page(self, index: str, project: str) -> list[IndexFile]:
        address = f"{index}/{project}/"
        kept = self._pages / hashlib.sha256(address.encode()).hexdigest()
        if kept.exists() and time.time() - kept.stat().st_mtime < PAGE_LIFE:
            return _unpack(kept, address)
        if index in self._unreachable:
            raise UpstreamError(404, f"{index} could not be reached before")
        try:
            with open_url(address, simple_api.ACCEPT) as response:
                content_type = response.headers.get_content_type()
                text = response.read().decode()
        except UpstreamError as error:
            if kept.exists():  # better an old page than none
                return _unpack(kept, address)
            if error.status == 502 and index == PYTORCH_CPU:
                # Not every machine reaches it. To installers, a project is then one that the additional index lacks.
                self._unreachable.add(index)
                raise UpstreamError(404, str(error)) from None
            raise
        kept.parent.mkdir(parents=True, exist_ok=True)
        partial = kept.with_suffix(f".{os.getpid()}-{time.monotonic_ns()}")
        partial.write_text(f"{content_type}\n{text}")
        partial.replace(kept)
        return _unpack(kept, address)

    def _send(self, handler: Handler, url: str) -> None:
        if kept := self._files.kept(url):
            _send_file(handler, kept)
            return
        size, content = self._files.read(url)
        handler.send_response(200)
        handler.send_header("Content-Type", "application/octet-stream")
        if size is None:
            handler.send_header("Connection", "close")
            handler.close_connection = True
        else:
            handler.send_header("Content-Length", str(size))
        handler.end_headers()
        if handler.command == "HEAD":
            return
        try:
            for chunk in content:
                handler.wfile.write(chunk)
        except UpstreamError:
            handler.break_connection()


def _unpack(kept: Path, address: str) -> list[IndexFile]:
    content_type, _, text = kept.read_text().partition("\n")
    files = simple_api.read(text, content_type, address)
    return [replace(file, name=unquote(file.name)) for file in files]


@lru_cache(maxsize=256)
def _sha256(path: Path, mtime_ns: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _send_file(handler: Handler, path: Path) -> None:
    size = path.stat().st_size
    try:
        part = parse_range(handler.headers.get("Range"), size)
    except RangeNotSatisfiable:
        handler.reply(416, b"", {"Content-Range": f"bytes */{size}"})
        return
    handler.send_response(206 if part else 200)
    handler.send_header("Content-Type", "application/octet-stream")
    handler.send_header("Accept-Ranges", "bytes")
    handler.send_header("Content-Length", str(part.length if part else size))
    if part:
        handler.send_header("Content-Range", part.header())
    handler.end_headers()
    if handler.command == "HEAD":
        return
    with path.open("rb") as handle:
        handle.seek(part.first if part else 0)
        left = part.length if part else size
        while left and (chunk := handle.read(min(256 << 10, left))):
            handler.wfile.write(chunk)
            left -= len(chunk)

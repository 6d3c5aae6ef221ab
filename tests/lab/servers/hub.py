"""A model hub: the part of the Hugging Face Hub's HTTP API that downloads use.

Addresses, headers and error codes as huggingface_hub 2.4 reads them (file_download.py, hf_api.py,
utils/_http.py) and the Hub documents them: model info and tree, `resolve` with `X-Repo-Commit`, `ETag`,
`X-Linked-Size` and `X-Linked-Etag`, LFS content behind a redirect to another origin (the CDN), ranges. Only with
`xet` it names Xet storage, a third origin; without, clients take the plain HTTP way.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tests.lab.servers import xet
from tests.lab.servers.content import Request, send_content, send_xorb
from tests.lab.servers.faults import Fault, Where
from tests.lab.servers.http import Handler, RangeNotSatisfiable, Server, parse_range
from tests.lab.servers.repository import Repository, RepositoryFile

_XET_TOKEN = "xet-token-of-this-hub"
_FILE_HEADERS = {"Accept-Ranges": "bytes", "Cache-Control": "no-store"}


class Hub:
    """The hub; `with Hub(address) as hub:` serves on three ports: API, CDN and Xet storage.

    Attributes:
        faults: what is to go wrong; the first that applies counts. Tests change it while the hub runs.
        tokens: valid tokens, and whether each may read gated repositories.
        requests: all requests so far.
        xet: whether content in LFS is offered from Xet storage, too.
        xet_url: where clients are told that storage is; a test may name a place where nobody answers.
    """

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self.faults: list[Fault] = []
        self.tokens: dict[str, bool] = {}
        self.requests: list[Request] = []
        self.xet = False
        self._repositories: dict[str, Repository] = {}
        self._lock = threading.Lock()
        self._api = Server(address, self._answer_api, port)
        self._cdn = Server(address, self._answer_cdn)
        self._xet = Server(address, self._answer_xet)
        self.xet_url = self._xet.url

    @property
    def endpoint(self) -> str:
        """Value for `HF_ENDPOINT`."""
        return self._api.url

    @contextmanager
    def running(self) -> Iterator[Hub]:
        """Serve within."""
        with self._api.running(), self._cdn.running(), self._xet.running():
            yield self

    def add(self, name: str, directory: Path, *, gated: bool = False, private: bool = False) -> str:
        """Commit `directory` to `main` of repository `name`, made when missing; returns the commit id."""
        repository = self._repositories.setdefault(name, Repository(name, gated, private))
        return repository.commit(directory)

    def sent(self, file: str) -> int:
        """Bytes of `file` that went out in all."""
        return sum(request.sent for request in self.requests if request.file == file)

    def count(self, file: str | None = None, *, where: Where = "any", method: str | None = None) -> int:
        """How many requests came (for a file, to a part of the hub, by method)."""
        return sum(
            (file is None or request.file == file)
            and (where in ("any", request.where))
            and (method is None or request.method == method)
            for request in self.requests
        )

    def _answer_api(self, handler: Handler) -> None:
        parts = handler.route.strip("/").split("/")
        match parts:
            case ["api", "whoami-v2"]:
                self._who_am_i(handler)
            case ["api", "models", owner, name]:
                self._info(handler, f"{owner}/{name}", "main")
            case ["api", "models", owner, name, "revision", *revision]:
                self._info(handler, f"{owner}/{name}", "/".join(revision))
            case ["api", "models", owner, name, "tree", revision, *below]:
                self._tree(handler, f"{owner}/{name}", revision, "/".join(below))
            case ["api", "models", owner, name, "xet-read-token", revision]:
                self._xet_token(handler, f"{owner}/{name}", revision)
            case [owner, name, "resolve", revision, *path] if path:
                self._resolve(handler, f"{owner}/{name}", revision, "/".join(path))
            case _:
                handler.reply(404, b"Not Found")

    def _who_am_i(self, handler: Handler) -> None:
        if self._token(handler) in self.tokens:
            _json(handler, {"type": "user", "name": "lab", "auth": {"type": "access_token"}})
        else:
            handler.reply(
                401, b"Invalid credentials", {"X-Error-Message": "Invalid credentials in Authorization header"}
            )

    def _info(self, handler: Handler, name: str, revision: str) -> None:
        request = self._note(handler, "api", None)
        found = self._open(handler, request, name, revision)
        if found is None:
            return
        commit, files = found
        siblings = [entry.sibling(blobs="blobs=" in handler.query) for entry in files.values()]
        repository = self._repositories[name]
        body = {"_id": commit[:24], "id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": []}
        gated = "manual" if repository.gated else False
        _json(handler, {**body, "private": repository.private, "gated": gated, "disabled": False, "downloads": 0})
        request.status = 200

    def _tree(self, handler: Handler, name: str, revision: str, below: str) -> None:
        request = self._note(handler, "api", None)
        found = self._open(handler, request, name, revision)
        if found is None:
            return
        prefix = f"{below}/" if below else ""
        files = [entry for path, entry in found[1].items() if path.startswith(prefix)]
        recursive = "recursive=true" in handler.query.lower()
        shown = [entry for entry in files if recursive or "/" not in entry.path.removeprefix(prefix)]
        folders = sorted({prefix + e.path.removeprefix(prefix).split("/")[0] for e in files if e not in shown})
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": folder} for folder in folders]
        _json(handler, [*entries, *(entry.tree_entry() for entry in shown)])
        request.status = 200

    def _resolve(self, handler: Handler, name: str, revision: str, path: str) -> None:
        request = self._note(handler, "resolve", path)
        found = self._open(handler, request, name, revision)
        if found is None:
            return
        commit, files = found
        if path not in files:
            self._refuse(handler, request, 404, "EntryNotFound", "Entry not found")
            return
        entry = files[path]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{entry.etag}"', **_FILE_HEADERS}
        if not entry.lfs:
            self._send(handler, request, entry, headers)
            return
        linked = {"X-Linked-Size": str(entry.size), "X-Linked-Etag": f'"{entry.sha256}"'}
        if self.xet:
            refresh = f"{self.endpoint}/api/models/{name}/xet-read-token/{commit}"
            linked |= {"X-Xet-Hash": xet.xet_hash(entry), "Link": f'<{refresh}>; rel="xet-auth"'}
        location = f"{self._cdn.url}/{name}/{entry.sha256}/{quote(path, safe='')}"
        request.status = 302
        handler.reply(302, f"Found. Redirecting to {location}".encode(), {**headers, **linked, "Location": location})

    def _answer_cdn(self, handler: Handler) -> None:
        owner, name, digest, *rest = handler.route.strip("/").split("/")
        path = "/".join(rest)
        request = self._note(handler, "cdn", path)
        if self._fail(handler, request):
            return
        repository = self._repositories.get(f"{owner}/{name}")
        stored = [files.get(path) for files in repository.commits.values()] if repository else []
        entry = next((entry for entry in stored if entry and entry.sha256 == digest), None)
        if entry is None:
            self._refuse(handler, request, 404, "EntryNotFound", "Entry not found")
        else:
            self._send(handler, request, entry, {"ETag": f'"{entry.sha256}"', **_FILE_HEADERS})

    def _xet_token(self, handler: Handler, name: str, revision: str) -> None:
        """Whoever may read the repository gets a token of the storage, in headers and body alike."""
        request = self._note(handler, "api", None)
        if self._open(handler, request, name, revision) is None:
            return
        expiry = int(time.time()) + 3600
        headers = {
            "X-Xet-Cas-Url": self.xet_url,
            "X-Xet-Access-Token": _XET_TOKEN,
            "X-Xet-Token-Expiration": str(expiry),
        }
        request.status = 200
        body = {"accessToken": _XET_TOKEN, "exp": expiry, "casUrl": self.xet_url}
        handler.reply(200, json.dumps(body).encode(), headers, "application/json")

    def _answer_xet(self, handler: Handler) -> None:
        parts = handler.route.strip("/").split("/")
        files = {
            entry for one in self._repositories.values() for commit in one.commits.values() for entry in commit.values()
        }
        found: RepositoryFile | None = None
        xorb: xet.Xorb | None = None
        match parts:
            case ["v1", "reconstructions", digest]:
                found = next((entry for entry in files if xet.xet_hash(entry) == digest), None)
            case ["xorbs", digest]:
                found = next((entry for entry in files if entry.sha256[:56] == digest[:56]), None)
                xorb = xet.Xorb(found, int(digest[56:], 16)) if found else None
        request = self._note(handler, "xet", found.path if found else None)
        request.authorized = self._token(handler) == _XET_TOKEN
        if found is None:
            self._refuse(handler, request, 404, "", "Not found")
        elif self._fail(handler, request):
            return
        elif xorb is None and not request.authorized:
            self._refuse(handler, request, 401, "", "no token of the storage")
        else:
            try:
                part = xet.whole_or_part(handler.headers.get("Range"), xorb.size if xorb else found.size)
            except RangeNotSatisfiable:
                self._refuse(handler, request, 416, "", "begins beyond the end")
                return
            if xorb is not None:
                send_xorb(handler, request, self._fault(request) or Fault(), xorb, part)
            else:
                request.status = 200
                _json(handler, xet.reconstruction(found, part, self._xet.url))

    def _open(
        self, handler: Handler, request: Request, name: str, revision: str
    ) -> tuple[str, dict[str, RepositoryFile]] | None:
        """The commit asked for; None after a refusal was sent."""
        if self._fail(handler, request):
            return None
        repository = self._repositories.get(name)
        token = self._token(handler)
        if token is not None and token not in self.tokens:
            self._refuse(handler, request, 401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and token is None):
            # The Hub tells those without a token no difference between a missing and a private repository.
            self._refuse(handler, request, 401 if token is None else 404, "RepoNotFound", "Repository not found")
        elif repository.gated and not (token and self.tokens[token]):
            text = (
                f"Access to model {name} is restricted. You must have access to it and be authenticated to access it."
            )
            self._refuse(handler, request, 403 if token else 401, "GatedRepo", text)
        elif (commit := repository.resolve(revision)) is None:
            self._refuse(handler, request, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return commit, repository.commits[commit]
        return None

    def _send(self, handler: Handler, request: Request, entry: RepositoryFile, headers: dict[str, str]) -> None:
        try:
            part = parse_range(handler.headers.get("Range"), entry.size)
        except RangeNotSatisfiable:
            request.status = 416
            handler.reply(416, b"", {"Content-Range": f"bytes */{entry.size}"})
            return
        fault = (self._fault(request) if handler.command != "HEAD" else None) or Fault()
        if handler.headers.get("If-Range", headers["ETag"]) != headers["ETag"] or fault.no_ranges:
            part = None
        first, length = (part.first, part.length) if part else (0, entry.size)
        request.status = 206 if part else 200
        handler.send_response(request.status)
        fields = {"Content-Type": "application/octet-stream", "Content-Length": str(length), **headers}
        for field_name, value in (fields | ({"Content-Range": part.header()} if part else {})).items():
            handler.send_header(field_name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            send_content(handler, request, fault, entry.source, entry.size, first, first + length)

    def _note(self, handler: Handler, where: Where, file: str | None) -> Request:
        request = Request(where, handler.command, handler.route, file, range=handler.headers.get("Range"))
        request.authorized = self._token(handler) in self.tokens
        with self._lock:
            self.requests.append(request)
        return request

    def _fault(self, request: Request) -> Fault | None:
        """The fault that this request meets; counts it when it shows in the content."""
        with self._lock:
            fault = next((fault for fault in self.faults if fault.applies(request.where, request.file)), None)
            if fault is not None and fault.status is None and fault.times is not None:
                fault.times -= 1
            return fault if fault is not None and fault.status is None else None

    def _fail(self, handler: Handler, request: Request) -> bool:
        """Whether the request was answered with a fault's status."""
        with self._lock:
            fault = next((fault for fault in self.faults if fault.applies(request.where, request.file)), None)
            if fault is None or fault.status is None:
                return False
            if fault.times is not None:
                fault.times -= 1
        request.status = fault.status
        message = {"X-Error-Message": fault.message} if fault.message else {}
        handler.reply(fault.status, json.dumps({"error": fault.message}).encode(), {**message, **fault.headers})
        return True

    def _refuse(self, handler: Handler, request: Request, status: int, code: str, message: str) -> None:
        request.status = status
        headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
        handler.reply(status, json.dumps({"error": message}).encode(), headers, "application/json")

    def _token(self, handler: Handler) -> str | None:
        scheme, _, token = handler.headers.get("Authorization", "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" and token else None


def _json(handler: Handler, body: object) -> None:
    handler.reply(200, json.dumps(body).encode(), content_type="application/json")

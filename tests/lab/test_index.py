"""The package index server: what clients see of upstream, of local wheels, and when either is gone."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.servers import simple_api
from tests.lab.servers.http import Handler, Server
from tests.lab.servers.index import PackageIndex, find_links
from tests.lab.servers.simple_api import IndexFile

WHEEL = b"content of a wheel " * 1000
DIGEST = hashlib.sha256(WHEEL).hexdigest()
LOCAL = "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"


class Upstream:
    """An index with one project, in HTML, that counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.server = Server("127.0.0.1", self.answer)

    def answer(self, handler: Handler) -> None:
        self.asked.append(handler.route)
        if handler.route == "/simple/six/":
            link = f'<a href="../../six-1.0-py3-none-any.whl#sha256={DIGEST}" data-requires-python="&gt;=3">six</a>'
            handler.reply(200, link.encode(), content_type="text/html")
        elif handler.route == "/six-1.0-py3-none-any.whl":
            handler.reply(200, WHEEL)
        else:
            handler.reply(404)


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Upstream]:
    """The index of "this machine", with one wheel in its find-links folder."""
    (tmp_path / LOCAL).write_bytes(b"local")
    up = Upstream()
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{up.server.url}/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with up.server.running():
        yield up


@pytest.fixture
def index(upstream: Upstream, tmp_path: Path) -> Iterator[PackageIndex]:
    """The server under test, its cache empty."""
    with PackageIndex(directory=tmp_path / "cache").running() as server:
        yield server


def get(url: str, accept: str = simple_api.JSON_TYPE) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers={"Accept": accept}), timeout=20) as response:
        body: bytes = response.read()
    return body


def only_file(index_url: str, project: str) -> dict[str, object]:
    [file] = json.loads(get(f"{index_url}/{project}/"))["files"]
    assert isinstance(file, dict)
    return file


def test_files_come_through_the_cache_and_upstream_is_asked_once(index: PackageIndex, upstream: Upstream) -> None:
    for _ in range(2):
        file = only_file(index.url, "six")
        assert file["hashes"] == {"sha256": DIGEST}
        assert file["requires-python"] == ">=3"
        assert get(str(file["url"])) == WHEEL
    assert upstream.asked == ["/simple/six/", "/six-1.0-py3-none-any.whl"]


def test_wheels_of_this_machine_are_an_extra_index_and_a_find_links_page(index: PackageIndex) -> None:
    file = only_file(index.extra_url, "torch")
    assert file["filename"] == LOCAL
    assert get(str(file["url"])) == b"local"
    assert LOCAL.encode() in get(index.find_links_url, accept="text/html")


def test_an_unknown_project_is_missing_and_a_failing_index_is_down(index: PackageIndex) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"{index.url}/nothing/")
    index.failing = 503
    with pytest.raises(urllib.error.HTTPError, match="503"):
        get(f"{index.url}/six/")


def test_a_request_can_be_waited_for(index: PackageIndex) -> None:
    only_file(index.url, "six")
    assert index.log.wait_for(lambda request: request.path == "/simple/six/", timeout=5).path == "/simple/six/"


@pytest.mark.parametrize("accept", [simple_api.JSON_TYPE, simple_api.HTML_TYPE])
def test_a_page_reads_back_as_it_was_written(accept: str) -> None:
    file = IndexFile("a-1-py3-none-any.whl", "http://x/a-1-py3-none-any.whl", "ab" * 32, ">=3.9,<4", True, "broken")
    content_type, page = simple_api.write("a", [file], accept)
    assert content_type == accept
    assert simple_api.read(page.decode(), content_type, "http://x/simple/a/") == [file]


def test_find_links_are_folders_in_either_notation(tmp_path: Path) -> None:
    environment = {"PIP_FIND_LINKS": f"{tmp_path} https://example.org/wheels", "UV_FIND_LINKS": tmp_path.as_uri()}
    assert find_links(environment) == [tmp_path]

"""The hub server, asked by the real huggingface_hub: what it does for a client that downloads, and how it fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from huggingface_hub import HfApi, hf_hub_download, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from tests.lab.servers import faults
from tests.lab.servers.faults import Fault
from tests.lab.servers.hub import Hub

NAME = "lab/model"
WEIGHTS = "model-00001-of-00001.safetensors"
SIZE = 300_000


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository's files: one small, one in LFS, one in a folder."""
    directory = tmp_path / "repository"
    (directory / "assets").mkdir(parents=True)
    (directory / "config.json").write_text('{"model_type": "qwen3_5"}')
    (directory / WEIGHTS).write_bytes(bytes(index * 7 % 251 for index in range(SIZE)))
    (directory / "assets/readme.txt").write_text("hello")
    return directory


@pytest.fixture
def hub(repository: Path) -> Iterator[Hub]:
    """A hub that holds the repository."""
    with Hub().running() as server:
        server.add(NAME, repository)
        yield server


def commit_of(hub: Hub) -> str:
    sha = HfApi(hub.endpoint, token=False).model_info(NAME).sha
    assert sha is not None
    return sha


def fetch(
    hub: Hub, target: Path, file: str = WEIGHTS, *, token: str | bool = False, revision: str | None = None
) -> bytes:
    place = hf_hub_download(NAME, file, endpoint=hub.endpoint, local_dir=target, token=token, revision=revision)
    return Path(place).read_bytes()


def test_a_snapshot_equals_the_repository(hub: Hub, repository: Path, tmp_path: Path) -> None:
    place = Path(snapshot_download(NAME, endpoint=hub.endpoint, local_dir=tmp_path / "got", token=False))
    for file in ("config.json", WEIGHTS, "assets/readme.txt"):
        assert (place / file).read_bytes() == (repository / file).read_bytes()


def test_content_of_lfs_comes_from_the_cdn_and_small_files_from_the_hub(hub: Hub, tmp_path: Path) -> None:
    fetch(hub, tmp_path)
    fetch(hub, tmp_path, "config.json")
    assert hub.count(WEIGHTS, where="cdn", method="GET") == 1
    assert hub.count("config.json", where="cdn") == 0
    assert hub.sent(WEIGHTS) == SIZE


def test_the_token_does_not_leave_the_hub_for_the_cdn(hub: Hub, tmp_path: Path) -> None:
    hub.tokens["hf_good"] = True
    fetch(hub, tmp_path, token="hf_good")
    seen = {request.where: request.authorized for request in hub.requests}
    assert seen == {"resolve": True, "cdn": False}


def test_the_tree_names_lfs_digests_and_git_blob_ids(hub: Hub) -> None:
    api = HfApi(hub.endpoint, token=False)
    files = {entry.path: entry for entry in api.list_repo_tree(NAME, recursive=True)}
    weights, config = files[WEIGHTS], files["config.json"]
    assert isinstance(weights, RepoFile)
    assert isinstance(config, RepoFile)
    assert weights.lfs is not None
    assert weights.lfs.size == SIZE
    # `sha256sum` and `git hash-object` of the contents, worked out apart from the server
    assert weights.lfs.sha256 == "b1cf7538cf80d01efe3e0b8e45dc930048a138c7b6f8c4aff08f478e4695e631"
    assert config.blob_id == "d3cb6a288414dfca2395dcbe7f2601aa3de0ea0b"


def test_a_revision_is_pinned_by_its_commit(hub: Hub, repository: Path) -> None:
    before = commit_of(hub)
    (repository / "config.json").write_text("{}")
    hub.add(NAME, repository)
    assert commit_of(hub) != before
    assert HfApi(hub.endpoint, token=False).model_info(NAME, revision=before).sha == before


def test_a_closed_connection_is_resumed_at_the_byte_where_it_broke(
    hub: Hub, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 50_000)  # what is not a whole chunk is lost
    hub.faults = [Fault("cdn", reset_at=100_000, orderly=True, times=1)]
    assert fetch(hub, tmp_path) == (repository / WEIGHTS).read_bytes()
    assert [request.range for request in hub.requests if request.where == "cdn"] == [None, "bytes=100000-"]
    assert hub.sent(WEIGHTS) == SIZE


def test_a_reset_connection_is_an_error_of_the_network(hub: Hub, repository: Path, tmp_path: Path) -> None:
    hub.faults = [Fault("cdn", reset_at=100_000, times=1)]
    with pytest.raises(httpx2.ReadError, match="reset"):
        fetch(hub, tmp_path)
    assert fetch(hub, tmp_path) == (repository / WEIGHTS).read_bytes()


def test_wrong_content_has_the_right_size(hub: Hub, repository: Path, tmp_path: Path) -> None:
    hub.faults = [Fault("cdn", files="*.safetensors", corrupt=True)]
    got = fetch(hub, tmp_path)
    differing = [
        index for index, (a, b) in enumerate(zip(got, (repository / WEIGHTS).read_bytes(), strict=True)) if a != b
    ]
    assert differing == [SIZE // 2]


@pytest.mark.parametrize(
    ("fault", "error", "status"),
    [
        (faults.unauthorized(), HfHubHTTPError, 401),
        (faults.gated(), GatedRepoError, 403),
        (faults.repository_missing(), RepositoryNotFoundError, 404),
        (faults.broken(500), HfHubHTTPError, 500),
        (faults.broken(503), HfHubHTTPError, 503),
    ],
    ids=["unauthorized", "gated", "missing", "broken", "unavailable"],
)
def test_a_fault_reaches_the_client_as_its_own_error(
    hub: Hub, fault: Fault, error: type[HfHubHTTPError], status: int
) -> None:
    hub.faults = [fault]
    with pytest.raises(error) as caught:
        HfApi(hub.endpoint, token=False).model_info(NAME)
    assert caught.value.response.status_code == status


def test_a_rate_limit_says_when_to_come_back_and_then_passes(hub: Hub) -> None:
    hub.faults = [faults.rate_limited(3, times=1)]
    with pytest.raises(HfHubHTTPError) as caught:
        HfApi(hub.endpoint, token=False).model_info(NAME)
    assert caught.value.response.headers["Retry-After"] == "3"
    assert commit_of(hub)


def test_gated_and_private_repositories_ask_for_the_right_token(hub: Hub, repository: Path) -> None:
    hub.add("lab/gated", repository, gated=True)
    hub.add("lab/private", repository, private=True)
    hub.tokens |= {"hf_good": True, "hf_stranger": False}

    def info(name: str, token: str | bool) -> str | None:
        return HfApi(hub.endpoint, token=token).model_info(name).sha

    with pytest.raises(RepositoryNotFoundError):
        info("lab/private", False)
    for token in (False, "hf_stranger"):
        with pytest.raises(GatedRepoError):
            info("lab/gated", token)
    assert info("lab/gated", "hf_good")
    assert info("lab/private", "hf_stranger")
    with pytest.raises(HfHubHTTPError, match="401"):
        info(NAME, "hf_unknown")


def test_what_is_not_there_is_named_by_kind(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(RemoteEntryNotFoundError):
        fetch(hub, tmp_path, "nothing.bin")
    with pytest.raises(RevisionNotFoundError):
        fetch(hub, tmp_path, revision="f" * 40)


def test_a_stopped_hub_refuses_connections(repository: Path) -> None:
    with Hub().running() as server:
        server.add(NAME, repository)
        url = hf_hub_url(NAME, "config.json", endpoint=server.endpoint)
    assert url.startswith(server.endpoint)
    with pytest.raises(Exception, match=r"refused|connect"):
        HfApi(server.endpoint, token=False).model_info(NAME)

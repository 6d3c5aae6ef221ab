"""What a person reads when a checkpoint cannot be had: the reason and the next step, one message for each case."""

from __future__ import annotations

import errno
import ssl
from typing import Any

import pytest

from qwenlab.remote.checkpoint import manifest
from qwenlab.remote.checkpoint.job import Job
from qwenlab.remote.checkpoint.refusals import HubStatusError, Refusal
from qwenlab.remote.checkpoint.words import explain
from tests.checkpoint.fetching import Host
from tests.lab.servers import faults
from tests.lab.servers.faults import Fault

ABSENT = "f" * 40


@pytest.mark.parametrize(
    ("repository", "token", "words"),
    [
        ("lab/gated", None, ["is gated and no token was given", "accept its licence at {hub}/lab/gated"]),
        ("lab/gated", "hf_other", ["is gated and the account 'lab'", "was not let in", "at {hub}/lab/gated with that"]),
        ("lab/gated", "hf_typo", ["does not know the token that was given (HTTP 401)", "mistyped, expired"]),
        ("lab/tiny", "hf_typo", ["does not know the token", "or give none if lab/tiny is public", "HF_TOKEN"]),
        (
            "lab/private",
            None,
            ["shows it to nobody without a token (HTTP 401)", "or it is private", "/settings/tokens"],
        ),
        ("lab/nothing", None, ["there is no lab/nothing, then check the name at {hub}/lab/nothing"]),
        ("lab/nothing", "hf_other", ["shows the account 'lab' no lab/nothing (HTTP 404)", "check the name"]),
    ],
)
def test_a_hub_that_lets_nobody_in_is_explained_by_repository_and_token(
    rack: Host, repository: str, token: str | None, words: list[str]
) -> None:
    source = rack.root / "source"
    commits = {"lab/tiny": rack.commit}
    commits["lab/gated"] = rack.hub.add("lab/gated", source, gated=True)
    commits["lab/private"] = rack.hub.add("lab/private", source, private=True)
    rack.hub.tokens.update(hf_other=False)
    code, said = rack.fetch(repo=repository, revision=commits.get(repository, ABSENT), token=token)
    assert code == 1
    assert all(word.format(hub=rack.hub.endpoint) in said for word in words), said
    assert token is None or token not in said
    assert all(request.sent == 0 for request in rack.hub.requests)


def test_the_token_of_an_account_that_was_let_in_opens_a_gated_repository(rack: Host) -> None:
    commit = rack.hub.add("lab/gated", rack.root / "source", gated=True)
    rack.hub.tokens["hf_owner"] = True
    assert rack.fetch(repo="lab/gated", revision=commit, token="hf_owner") == (0, "")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            Fault(where="api", status=403, message="enable access to public gated repositories"),
            ["this token of the account 'lab'", "HTTP 403", "The hub says: enable access to public gated repositories"],
        ),
        (Fault(where="cdn", status=403), ["storage at http://127.0.0.1:", "HTTP 403", "proxy or a firewall"]),
        (Fault(where="cdn", status=451, message="withdrawn"), ["answers HTTP 451: withdrawn"]),
        (faults.broken(500), ["is in trouble (HTTP 500)", "deploy again later", "is kept"]),
        (faults.rate_limited(0), ["limits the rate (HTTP 429)", "qwen_hub_token_file"]),
        (Fault(where="cdn", corrupt=True), ["arrived 3 times with another content", "proxy or mirror"]),
    ],
    ids=["403", "403 of the storage", "another status", "500", "429", "always wrong"],
)
def test_a_hub_that_fails_is_named_with_what_to_do(rack: Host, fault: Fault, words: list[str]) -> None:
    rack.hub.tokens["hf_mine"] = True
    rack.hub.faults[:] = [fault]
    code, said = rack.fetch(attempts=2, token="hf_mine")
    assert code == 1
    assert all(word in said for word in words), said
    assert rack.status()["state"] == "failed"
    assert rack.status()["message"] in said
    assert manifest.NAME not in rack.files()


@pytest.mark.parametrize("revision", [ABSENT, "no-such-branch"])
def test_an_unknown_revision_is_named_with_the_page_that_lists_them(rack: Host, revision: str) -> None:
    code, said = rack.fetch(revision=revision)
    assert code == 1
    assert f"{rack.hub.endpoint}/lab/tiny has no such commit, compare with" in said
    assert "/lab/tiny/commits/main" in said


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "http://no-such-host.invalid"])
def test_a_hub_that_cannot_be_reached_is_named_with_the_settings_to_check(rack: Host, endpoint: str) -> None:
    code, said = rack.fetch(endpoint=endpoint, attempts=2)
    assert code == 1
    assert f"{endpoint} cannot be reached from this host: check qwen_hub_endpoint and qwen_https_proxy" in said


def job(**more: Any) -> Job:
    """A fetch into /srv."""
    directory = f"/srv/qwen/models/lab/tiny/{ABSENT}"
    return Job("lab/tiny", ABSENT, directory, "/srv/qwen/models", **{"source": "hub", "status": "", **more})


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ssl.SSLCertVerificationError("certificate verify failed"), ["not trusted", "qwen_extra_ca_certificates"]),
        (OSError(errno.ENOSPC, "No space left on device"), ["the disk below /srv/qwen/models/lab/tiny is full"]),
        (OSError(errno.EIO, "Input/output error"), ["reports an error: look at dmesg"]),
        (PermissionError(errno.EACCES, "Permission denied"), ["the service user may not write", "chown"]),
        (OSError(errno.EROFS, "Read-only file system"), ["is read-only: mount it writable"]),
        (RuntimeError("something else"), ["RuntimeError: something else"]),
    ],
)
def test_a_host_in_trouble_is_told_so(error: Exception, words: list[str]) -> None:
    assert all(word in explain(error, job()) for word in words)


def test_the_cause_behind_an_error_is_found() -> None:
    error = RuntimeError("download failed")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert "is full" in explain(error, job())


def test_a_peer_that_refuses_is_told_from_a_hub() -> None:
    said = explain(HubStatusError(Refusal(403)), job(source="peer", endpoint="http://10.0.0.1:8719"))
    assert "the peer at http://10.0.0.1:8719 refuses (HTTP 403)" in said
    assert "qwen_model_source = 'hub'" in said
    assert "token" not in said

"""What to say when a checkpoint cannot be fetched: the reason, and what its owner can do."""

from __future__ import annotations

import errno
import os
import urllib.error
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)


class FetchError(Exception):
    """A failure whose words are made already."""


class DigestError(FetchError):
    """A file arrived with another content than its source announced."""


class HubStatusError(Exception):
    """The hub answered a file's request with an error status.

    Attributes:
        status: HTTP status; code: the hub's own `X-Error-Code`.
    """

    def __init__(self, status: int, code: str | None, retry_after: str | None = None) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.code, self.retry_after = status, code, retry_after


BY_STATUS = {
    # HTTP status -> words; {hub}, {repo}
    401: "{hub} asks for a token (HTTP 401): set qwen_hub_token_file, or check the token and the name. "
    "Tokens are made at {hub}/settings/tokens; a private repository looks the same as one that does not exist: "
    "{hub}/{repo}.",
    403: "{hub} refuses this token (HTTP 403): accept the licence of {repo} there with its account, or make a token "
    "with read access at {hub}/settings/tokens.",
    404: "{hub} does not know it (HTTP 404): check the repository's name; a private one needs a token.",
    429: "{hub} limits the rate (HTTP 429): wait, or set qwen_hub_token_file.",
}
GATED = (
    "it is gated: accept its licence at {hub}/{repo} and set qwen_hub_token_file to a token of the account that was "
    "let in."
)
BY_ERRNO = {
    errno.ENOSPC: "the disk below {models} is full: free room or change qwen_model_directory, then deploy again; "
    "what is fetched is kept.",
    errno.EDQUOT: "the quota of the disk below {models} is used up: raise it or change qwen_model_directory.",
    errno.EROFS: "{models} is read-only: mount it writable (after a disk error see dmesg) or change "
    "qwen_model_directory.",
    errno.EACCES: "the service user may not write below {models}: give it the directory (chown) or change "
    "qwen_model_directory.",
    errno.EIO: "the disk below {models} reports an error: look at dmesg on the host.",
}


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that led to it."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        yield one
        one = one.__cause__ or one.__context__


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error carries."""
    if isinstance(error, HubStatusError):
        return error.status
    if isinstance(error, HfHubHTTPError) and (response := getattr(error, "response", None)) is not None:
        return int(response.status_code)
    return None


def is_gated(error: BaseException) -> bool:
    """Whether the hub said that the repository is only for accounts that were let in."""
    return isinstance(error, GatedRepoError) or (isinstance(error, HubStatusError) and error.code == "GatedRepo")


def explain(error: BaseException, repo: str, target: Path) -> str:
    """The reason in words, with what to do; looks through the errors that caused this one."""
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    names = {"hub": hub, "repo": repo, "models": target.parent}
    for one in causes(error):
        if isinstance(one, FetchError):
            return str(one)
        if is_gated(one):
            return GATED.format(**names)
        if isinstance(one, RevisionNotFoundError) or (
            isinstance(one, HubStatusError) and one.code == "RevisionNotFound"
        ):
            return f"{hub}/{repo} has no such commit: check the revision."
        if isinstance(one, OSError) and one.errno in BY_ERRNO:
            return BY_ERRNO[one.errno].format(**names)
        if (status := status_of(one)) is not None:
            if status in BY_STATUS:
                return BY_STATUS[status].format(**names)
            if status >= 500:
                return f"{hub} is in trouble (HTTP {status}): deploy again later; what is fetched is kept."
        if isinstance(one, RepositoryNotFoundError):
            return f"{hub} does not know it: check the repository's name; a private one needs a token."
    unreachable = (LocalEntryNotFoundError, urllib.error.URLError, ConnectionError, TimeoutError)
    if any(isinstance(one, unreachable) for one in causes(error)) or "onnect" in str(error):
        return (
            f"{hub} cannot be reached from this host: check qwen_hub_endpoint and qwen_https_proxy, then deploy "
            f"again; what is fetched is kept ({error})."
        )
    return f"{type(error).__name__}: {error}"

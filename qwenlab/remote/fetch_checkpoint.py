#!/usr/bin/env python3
"""fetch_checkpoint.py REPO REVISION DIRECTORY: fetch one checkpoint from the hub, whole or not at all.

Runs with the release's interpreter as the service user. The access token, if any, is one line on stdin; the hub's
address comes in HF_ENDPOINT. Files grow below `DIRECTORY.partial`, are resumed by the next run and renamed when all
are there.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)


def main() -> int:
    """Fetch; returns 0 when the checkpoint is whole."""
    repo, revision, target = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    token = sys.stdin.readline().strip() or False
    partial = target.with_name(f"{target.name}.partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (target.parent / f".{target.name}.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            if (target / ".complete").exists():
                return 0
            snapshot_download(repo, revision=revision, local_dir=partial, token=token, max_workers=4)
            files = {
                str(path.relative_to(partial)): path.stat().st_size
                for path in sorted(partial.rglob("*"))
                if path.is_file() and ".cache" not in path.relative_to(partial).parts
            }
            (partial / ".complete").write_text(
                json.dumps({"repo": repo, "revision": revision, "files": files}, indent=1)
            )
            os.sync()
            partial.rename(target)
    except Exception as error:
        print(f"{repo}@{revision[:12]} was not fetched: {explain(error, repo, target)}", file=sys.stderr)
        return 1
    return 0


def explain(error: BaseException, repo: str, target: Path) -> str:
    """The reason in words, with what to do; looks through the errors that caused this one."""
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    for one in chain:
        if isinstance(one, GatedRepoError):
            return f"it is gated: accept its licence at {endpoint}/{repo} and set qwen_hub_token_file."
        if isinstance(one, RevisionNotFoundError):
            return f"{endpoint}/{repo} has no such commit: check the revision."
        if isinstance(one, OSError) and one.errno == errno.ENOSPC:
            return (
                f"the disk below {target.parent} is full: free room or change qwen_model_directory, then deploy again."
            )
        if isinstance(one, HfHubHTTPError) and (response := getattr(one, "response", None)) is not None:
            status = response.status_code
            if status == 401:
                return (
                    f"{endpoint} asks for a token (HTTP 401): set qwen_hub_token_file, or check the token and the name."
                )
            if status == 403:
                return f"{endpoint} refuses this token (HTTP 403): accept the licence of {repo} there with its account."
            if status == 404:
                return (
                    f"{endpoint} does not know it (HTTP 404): check the repository's name; a private one needs a token."
                )
            if status == 429:
                return f"{endpoint} limits the rate (HTTP 429): wait, or set qwen_hub_token_file."
            if status >= 500:
                return f"{endpoint} is in trouble (HTTP {status}): deploy again later; what is fetched is kept."
        if isinstance(one, RepositoryNotFoundError):
            return f"{endpoint} does not know it: check the repository's name; a private one needs a token."
    if any(isinstance(one, LocalEntryNotFoundError) for one in chain) or "onnect" in str(error):
        return f"{endpoint} cannot be reached from this host: check qwen_hub_endpoint and qwen_https_proxy ({error})."
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())

"""What a fetch is asked to do: JSON that the deploy puts beside the unit, readable for the service user alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Job:
    """One checkpoint to fetch.

    Attributes:
        repo: `owner/name`; revision: commit, or a branch that is resolved once.
        directory: where it shall lie; models: the directory of all checkpoints.
        source: `hub`, `peer` or `path`.
        endpoint: address of the hub, or of the peer's server.
        token: of the hub.
        place: directory or archive of a `path` source.
        manifest: of the `peer` source: what the peer has verified, brought by the control machine.
        format: catalogue format that the plan counts on; None when any will do.
        status: file that tells the control machine how far it is.
        environment: proxies and certificates.
        verify: how files that lie there already are held against the manifest: `off`, `size` or `digest`.
        attempts, backoff_s: how often in a row a request may fail, and the first pause; it doubles.
        fetcher: `auto`: Xet storage where the hub has the files there; `ranges`: plain HTTP.
        xet_buffer: bytes that may be on their way from Xet storage; they come again after a kill.
        weights: False for a rehearsal: config, tokenizer and the like alone.
        deploy: an id of the deploy that wrote the job, repeated in the status file.
        prepare: `directory` and `recipe` of what `qwenlab.preparation` does afterwards; None for nothing.
    """

    repo: str
    revision: str
    directory: str
    models: str
    source: str
    status: str
    endpoint: str = "https://huggingface.co"
    token: str | None = None
    place: str | None = None
    manifest: dict[str, Any] | None = None
    format: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    verify: str = "size"
    attempts: int = 6
    backoff_s: float = 1.0
    fetcher: str = "auto"
    xet_buffer: int = 256 << 20
    weights: bool = True
    deploy: str = ""
    prepare: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Job({self.repo}@{self.revision[:12]} from {self.source})"

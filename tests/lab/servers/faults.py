"""Ways in which the model hub fails, to be switched on by tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Literal

Where = Literal["api", "resolve", "cdn", "xet", "any"]


@dataclass
class Fault:
    """What goes wrong, where, and how often.

    Attributes:
        where: `api` (model info, tree), `resolve` (the redirect or small files), `cdn` (LFS content), `xet`
            (the same from Xet storage) or `any`.
        files: glob over the file's path in the repository; `*` also takes requests that name no file.
        times: how many requests fail before all is well again; None for all.
        status: answer with this status instead; None to answer in the normal way, with the faults below.
        headers: added to that answer.
        message: its body and `X-Error-Message`.
        reset_at: break the connection when this byte of the file is due: with a reset, as a failing network does,
        orderly: or with an orderly close, as a proxy does that gives up.
        bytes_per_second: send no faster than this.
        corrupt: turn over one bit in the middle of the content.
        no_ranges: send the whole content whatever range was asked for.
    """

    where: Where = "any"
    files: str = "*"
    times: int | None = None
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    message: str = ""
    reset_at: int | None = None
    orderly: bool = False
    bytes_per_second: int | None = None
    corrupt: bool = False
    no_ranges: bool = False

    def applies(self, where: Where, file: str | None) -> bool:
        """Whether this request is one that fails."""
        if self.times == 0 or self.where not in ("any", where):
            return False
        return self.files == "*" if file is None else fnmatch(file, self.files)


def unauthorized(**more: object) -> Fault:
    """401: the token is not valid."""
    return _fault(401, "Invalid credentials in Authorization header", {}, more)


def gated(**more: object) -> Fault:
    """403: the repository is gated and the token's owner was not let in."""
    message = "Access to this model is restricted and you are not in the authorized list."
    return _fault(403, message, {"X-Error-Code": "GatedRepo"}, more)


def repository_missing(**more: object) -> Fault:
    """404: no such repository."""
    return _fault(404, "Repository not found", {"X-Error-Code": "RepoNotFound"}, more)


def rate_limited(seconds: int = 1, **more: object) -> Fault:
    """429: too many requests, come back after `seconds`."""
    return _fault(429, "Too many requests", {"Retry-After": str(seconds)}, more)


def broken(status: int = 500, **more: object) -> Fault:
    """500 or 503: the hub itself fails."""
    return _fault(status, "Internal Error - We're working hard to fix this as soon as possible!", {}, more)


def _fault(status: int, message: str, headers: dict[str, str], more: dict[str, object]) -> Fault:
    return Fault(status=status, message=message, headers=headers, **more)  # type: ignore[arg-type]

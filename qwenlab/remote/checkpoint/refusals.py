"""Answers of a hub other than the one that was hoped for, whichever client met them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from huggingface_hub.errors import HfHubHTTPError


@dataclass(frozen=True)
class Refusal:
    """An answer with an error status.

    Attributes:
        status: of HTTP.
        code: the hub's own `X-Error-Code`.
        said: its `X-Error-Message`.
        storage: address of the storage that answered, when it was not the hub itself.
        retry_after: as the header says.
    """

    status: int
    code: str | None = None
    said: str | None = None
    storage: str | None = None
    retry_after: str | None = None


class HubStatusError(Exception):
    """A file's request was answered with an error status."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"HTTP {refusal.status}")
        self.refusal = refusal


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those that led to it."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def refusal_of(error: BaseException) -> Refusal | None:
    """The answer that an error stands for."""
    if isinstance(error, HubStatusError):
        return error.refusal
    if isinstance(error, HfHubHTTPError) and (response := getattr(error, "response", None)) is not None:
        headers = response.headers
        return Refusal(
            int(response.status_code),
            headers.get("X-Error-Code"),
            headers.get("X-Error-Message"),
            None,
            headers.get("Retry-After"),
        )
    return None

"""What a server was asked, with a way to wait for a request instead of guessing when it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tests.lab.shell import LabError

T = TypeVar("T")


class RequestLog(Generic[T]):
    """Requests in the order of their arrival; safe among threads."""

    def __init__(self) -> None:
        self._requests: list[T] = []
        self._changed = threading.Condition()

    def add(self, request: T) -> T:
        """Note a request, and wake those who wait for it."""
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def all(self) -> list[T]:
        """All requests so far."""
        with self._changed:
            return list(self._requests)

    def clear(self) -> None:
        """Forget all requests."""
        with self._changed:
            self._requests.clear()

    def wait_for(self, wanted: Callable[[T], bool], timeout: float = 60.0) -> T:
        """The first request that fulfils `wanted`, past or future. Raises LabError after `timeout` seconds."""
        with self._changed:
            if self._changed.wait_for(lambda: any(wanted(request) for request in self._requests), timeout):
                return next(request for request in self._requests if wanted(request))
        raise LabError(f"the request waited for did not come within {timeout:.0f} s")

"""How long a fetch waits, and for what it does not."""

from __future__ import annotations

import errno
import http.client
import time
from email.utils import formatdate
from pathlib import Path

import pytest

from qwenlab.remote.checkpoint.download import Patience, passing
from qwenlab.remote.checkpoint.files import FileEntry
from qwenlab.remote.checkpoint.listing import free_space_problem, needed
from qwenlab.remote.checkpoint.refusals import HubStatusError, Refusal


def refused(status: int, retry_after: str | None = None) -> HubStatusError:
    """An answer of the hub's."""
    return HubStatusError(Refusal(status, retry_after=retry_after))


@pytest.mark.parametrize(
    ("failures", "retry_after", "seconds"),
    [(1, None, 1.0), (2, None, 2.0), (4, None, 8.0), (1, "7", 7.0), (4, "2", 8.0), (1, "3600", 60.0), (9, None, 60.0)],
)
def test_the_longer_of_our_pause_and_the_hub_s_counts_up_to_a_minute(
    failures: int, retry_after: str | None, seconds: float
) -> None:
    assert Patience().pause(failures, refused(429, retry_after)) == seconds


def test_the_hub_may_name_a_date() -> None:
    error = refused(503, formatdate(time.time() + 30, usegmt=True))
    assert 20 < Patience().pause(1, error) <= 30
    assert Patience().pause(1, refused(503, "nonsense")) == 1.0


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (refused(429), True),
        (refused(503), True),
        (refused(403), False),
        (refused(404), False),
        (ConnectionResetError(), True),
        (http.client.IncompleteRead(b""), True),
        (TimeoutError(), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (OSError(errno.EROFS, "Read-only file system"), False),
    ],
)
def test_networks_and_busy_hubs_are_asked_again_disks_and_refusals_are_not(error: Exception, again: bool) -> None:
    assert passing(error) is again


@pytest.mark.parametrize(
    ("missing", "free", "fits"),
    [(0, 0, True), (1 << 30, 1 << 30, False), (1 << 30, (1 << 30) + (64 << 20), True), (100 << 30, 101 << 30, False)],
)
def test_room_is_asked_for_with_a_margin(missing: int, free: int, fits: bool) -> None:
    assert (free_space_problem(missing, free, Path("/srv")) is None) is fits


def test_only_what_an_engine_reads_is_fetched_and_the_config_comes_first() -> None:
    names = ["model.safetensors", "pytorch_model.bin", "README.md", "config.json", "chat_template.jinja", "a/logo.png"]
    sizes = {"model.safetensors": 9_000}
    found = needed(FileEntry(name, sizes.get(name, 10)) for name in names)
    assert [entry.path for entry in found] == ["config.json", "chat_template.jinja", "model.safetensors"]
    assert [entry.path for entry in needed([FileEntry("pytorch_model.bin", 1)])] == ["pytorch_model.bin"]

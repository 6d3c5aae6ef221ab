"""Fixtures for tests on lab hosts. Hosts are shared by the tests of a module; a test that spoils one boots its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import lab


@pytest.fixture(scope="module")
def trixie() -> Iterator[lab.Host]:
    """A bare Debian 13 host."""
    with lab.hosts(1, release="trixie") as hosts:
        yield hosts[0]


@pytest.fixture(scope="module")
def bookworm() -> Iterator[lab.Host]:
    """A bare Debian 12 host."""
    with lab.hosts(1, release="bookworm") as hosts:
        yield hosts[0]

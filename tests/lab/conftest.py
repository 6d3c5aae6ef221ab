"""Fixtures for tests on lab hosts. Hosts are shared by the tests of a module; a test that spoils one boots its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import lab
from tests.lab.serving import Served, served_host


@pytest.fixture(scope="module")
def trixie() -> Iterator[lab.Host]:
    """A bare Debian 13 host."""
    with lab.hosts(1, release="trixie") as hosts:
        yield hosts[0]


@pytest.fixture(scope="module")
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A Debian 12 host that serves, deployed with the module's SETTINGS where it names some."""
    settings: dict[str, Any] = getattr(request.module, "SETTINGS", {})
    with served_host(tmp_path_factory.mktemp("served"), **settings) as host:
        yield host

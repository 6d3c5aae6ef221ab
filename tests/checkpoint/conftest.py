"""Fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.checkpoint import fetching


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[fetching.Host]:
    """A host and a hub."""
    with fetching.host(tmp_path) as found:
        yield found

"""The example inventories are valid: pyinfra loads them, and every setting in them is accepted."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from qwenlab.settings import load

EXAMPLES = sorted(Path(__file__).parents[2].joinpath("inventory", "examples").glob("*.py"))


def hosts_of(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Name and data of every host of an inventory file, group data beneath host data as pyinfra merges them."""
    found = []
    for name, group in runpy.run_path(str(path)).items():
        if name.startswith("_") or not isinstance(group, (list, tuple)):
            continue
        members, data = group if isinstance(group, tuple) else (group, {})
        found += [(host, {**data, **own}) for host, own in members]
    return found


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_holds_hosts_with_valid_settings(path: Path) -> None:
    hosts = hosts_of(path)
    assert hosts
    for _, data in hosts:
        load(data)

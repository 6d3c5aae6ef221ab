"""Which file set a key. pyinfra merges a host's data and keeps no file names, so the layers are asked one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Layer = tuple[str, Mapping[str, Any]]


def places(layers: Iterable[Layer]) -> dict[str, str]:
    """Key to place, the first layer that holds a key winning (pyinfra: command line, host, last group, ..., all)."""
    found: dict[str, str] = {}
    for place, data in layers:
        for key in data:
            found.setdefault(key, place)
    return found


def group_file(group: str, directories: Iterable[Path], inventory: str) -> str:
    """The file that holds a group's data: the last `group_data/<group>.py` that exists, else the inventory itself."""
    for directory in reversed(list(directories)):
        path = directory / "group_data" / f"{group}.py"
        if path.is_file():
            return str(path)
    return f"group {group!r} in {inventory}"


def inventory_argument(argv: Iterable[str]) -> str:
    """The inventory that pyinfra was called with, as it stands on the command line."""
    scripts = [argument for argument in argv if argument.endswith(".py") and Path(argument).is_file()]
    return scripts[0] if scripts else "the inventory"

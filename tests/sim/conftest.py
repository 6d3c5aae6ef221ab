"""Fixtures: a simulated machine for this process, and the real nvidia-ml-py bound to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from ctypes import CDLL
from pathlib import Path
from types import ModuleType

import pynvml  # type: ignore[import-untyped]
import pytest

from tests.sim import inventory
from tests.sim.local import SimRoot

Machine = Callable[[str], SimRoot]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Lays out a machine of `inventories/` by name."""
    return lambda name: SimRoot.create(tmp_path / name, inventory.load(name))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[SimRoot], ModuleType]]:
    """nvidia-ml-py, initialised on a simulated machine."""

    def bind(root: SimRoot) -> ModuleType:
        monkeypatch.setenv("QWEN_SIM_ROOT", str(root.path))
        monkeypatch.setattr(pynvml, "nvmlLib", CDLL(os.path.realpath(root.library)))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        pynvml.nvmlInit()
        module: ModuleType = pynvml
        return module

    yield bind
    if pynvml._nvmlLib_refcount:
        pynvml.nvmlShutdown()

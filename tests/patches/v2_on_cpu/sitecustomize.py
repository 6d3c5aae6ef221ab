"""Lets vLLM's V2 model runner work without a GPU. Put this folder on PYTHONPATH; Python imports it at start-up.

Triton's interpreter runs the kernels in NumPy, a stand-in "cpu" backend makes vLLM believe that Triton is usable, and
the CPU platform keeps asynchronous scheduling on, which a pipeline with a drafter needs. torchvision, whose builds on
PyPI do not import beside a CPU build of torch, is replaced by empty modules: text alone never calls it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Sequence
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"


class _ActiveDriver:
    @staticmethod
    def is_active() -> bool:
        return True


def _offer_triton_backend() -> None:
    backends: Any = importlib.import_module("triton.backends")
    backends.backends["cpu"] = types.SimpleNamespace(driver=_ActiveDriver, compiler=None)


def _keep_async_scheduling(module: types.ModuleType) -> None:
    platform: Any = module.__dict__["CpuPlatform"]
    original = platform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        original(cls, config)
        config.scheduler_config.async_scheduling = True

    platform.check_and_update_config = classmethod(check_and_update_config)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function on a module right after it was imported for the first time."""

    def __init__(self, name: str, then: Any) -> None:
        self.name, self.then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            self.then(module)

        setattr(spec.loader, "exec_module", exec_module)  # noqa: B010 (mypy: a method may not be assigned)
        return spec


class _Anything(type):
    """A class whose every attribute is another such class: enough for `InterpolationMode.BICUBIC` in a table."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Hollow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports any module below `package` as an empty one that has every name."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != self.package:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__version__"] = "0.28.0"
        names = _Anything(module.__name__, (), {})
        module.__dict__["__getattr__"] = lambda name: getattr(names, name)


_offer_triton_backend()
sys.meta_path.insert(0, _Hollow("torchvision"))
sys.meta_path.insert(0, _AfterImport("vllm.platforms.cpu", _keep_async_scheduling))

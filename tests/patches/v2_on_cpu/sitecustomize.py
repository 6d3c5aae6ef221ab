"""Lets vLLM's V2 model runner work without a GPU. Put this folder on PYTHONPATH; Python imports it at start-up.

Triton's interpreter runs the kernels in NumPy, a stand-in "cpu" backend makes vLLM believe that Triton is usable, and
the CPU platform keeps asynchronous scheduling on, which a pipeline with a drafter needs. torchvision, whose builds on
PyPI do not import beside a CPU build of torch, is replaced by empty modules: text alone never calls it. Packed weights
of a width that the CPU's own kernel does not take (it takes 4 bit) are unpacked at start-up by vLLM's code for its
layout and served as 16-bit ones. Token ids, which NCCL gathers like anything else, are gathered by Gloo: the CPU's own
kernel refuses integers.
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


def _offer_unpacking(module: types.ModuleType) -> None:
    base: Any = module.__dict__["MPLinearKernel"]

    class UnpackedLinearKernel(base):  # type: ignore[misc]
        @classmethod
        def get_min_capability(cls) -> int:
            return -1

        @classmethod
        def can_implement(cls, config: Any) -> tuple[bool, str | None]:
            return not config.zero_points, "asymmetric"

        def process_weights_after_loading(self, layer: Any) -> None:
            torch: Any = importlib.import_module("torch")
            packing: Any = importlib.import_module("vllm.model_executor.layers.quantization.utils.quant_utils")
            layers: Any = importlib.import_module("vllm.model_executor.layers.utils")
            packed, scales = getattr(layer, self.w_q_name), getattr(layer, self.w_s_name)
            kind = self.config.weight_type
            stored = packing.unpack_quantized_values_into_int32(packed.data, kind, packed.packed_dim)
            codes = (stored - kind.bias).float().unflatten(1, (scales.shape[1], -1))
            weight = (codes * scales.data.float().unsqueeze(2)).flatten(1).to(self.config.act_type)
            layer.weight = torch.nn.Parameter(weight, requires_grad=False)
            layers.dispatch_cpu_unquantized_gemm(layer, remove_weight=False)

        def apply_weights(self, layer: Any, x: Any, bias: Any = None) -> Any:
            return layer.cpu_linear(x, layer.weight, bias)

    offered: Any = module.__dict__["_POSSIBLE_KERNELS"]
    for platform, kernels in offered.items():
        if platform.name == "CPU":
            kernels.append(UnpackedLinearKernel)


def _gather_integers(module: types.ModuleType) -> None:
    """Tensor ranks gather the ids of DFlash2's candidates; the CPU's kernel is "not implemented for 'Long'"."""
    shared: Any = module.__dict__["_CPUSHMDistributed"]
    gather_floats = shared.all_gather_into_tensor

    def all_gather_into_tensor(self: Any, output: Any, input: Any, group: Any = None) -> None:
        if input.is_floating_point():
            gather_floats(self, output, input, group)
            return
        distributed: Any = importlib.import_module("torch.distributed")
        distributed.all_gather_into_tensor(output, input, group=group)

    shared.all_gather_into_tensor = all_gather_into_tensor


def _wait_asleep(module: types.ModuleType) -> None:
    """Processes that wait for each other sleep at once: spinning for a second first, they take each other's cores."""
    start = module.__dict__["SpinCondition"].__init__
    assert start.__defaults__ == (1,), "its only default was the seconds to spin"
    start.__defaults__ = (0,)


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
sys.meta_path.insert(0, _AfterImport("vllm.model_executor.kernels.linear", _offer_unpacking))
sys.meta_path.insert(0, _AfterImport("vllm.distributed.device_communicators.shm_broadcast", _wait_asleep))
sys.meta_path.insert(0, _AfterImport("vllm.distributed.device_communicators.cpu_communicator", _gather_integers))

# mypy: disable-error-code="import-not-found, misc, no-untyped-call"
"""Lets a CUDA release of vLLM build engine configurations where there is no GPU: import it before the rest of vLLM.

vLLM looks at the model's classes on the CPU platform (importing them for CUDA wants compiled objects), then everything
else happens on a CUDA platform whose compute capability the caller sets.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from typing import Any, ClassVar

# chosen by vLLM itself where a GPU's Triton is there
os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1"
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
ARCHITECTURES = ("Qwen3_5ForConditionalGeneration", "Qwen3_5MTP", "DFlash2DraftModel")


class _Blank(types.ModuleType):
    """A module in which every name is an empty class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _NoTorchvision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Image transforms that are imported by name and never called here."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Blank(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


import transformers.models.auto.image_processing_auto  # noqa: E402, F401  (asks once whether torchvision is there)

sys.meta_path.insert(0, _NoTorchvision())

import vllm.platforms as platforms  # noqa: E402
from vllm.platforms.cpu import CpuPlatform  # noqa: E402

platforms._current_platform = CpuPlatform()

from vllm.model_executor.models import ModelRegistry, registry  # noqa: E402

_known = {name: ModelRegistry.models[name] for name in ARCHITECTURES}
_infos = {id(model): registry._ModelInfo.from_model_cls(model.load_model_cls()) for model in _known.values()}
_inspect = registry._LazyRegisteredModel.inspect_model_cls
registry._LazyRegisteredModel.inspect_model_cls = lambda model: _infos.get(id(model)) or _inspect(model)

sys.modules["vllm._C_stable_libtorch"] = types.ModuleType("vllm._C_stable_libtorch")

import vllm._custom_ops as custom_ops  # noqa: E402

# Asked of the compiled library when quantization while loading is imported; it answers so from 8.9 on.
custom_ops.cutlass_scaled_mm_supports_fp8 = lambda capability: capability >= 89
custom_ops.cutlass_scaled_mm_supports_block_fp8 = lambda capability: capability >= 90
custom_ops.cutlass_group_gemm_supported = lambda capability: capability >= 90

from vllm.platforms.cuda import NonNvmlCudaPlatform  # noqa: E402
from vllm.platforms.interface import DeviceCapability  # noqa: E402


class FakeGpu(NonNvmlCudaPlatform):
    """CUDA without a driver."""

    capability = (8, 6)

    @classmethod
    def get_device_capability(cls, device_id: int = 0) -> Any:
        return DeviceCapability(*cls.capability)

    @classmethod
    def get_device_total_memory(cls, device_id: int = 0) -> int:
        return 24 << 30

    @classmethod
    def get_device_name(cls, device_id: int = 0) -> str:
        return "NVIDIA GPU"

    @classmethod
    def device_count(cls) -> int:
        return 16

    @classmethod
    def num_compute_units(cls, device_id: int = 0) -> int:
        return 82


platforms._current_platform = FakeGpu()
for _module in list(sys.modules.values()):
    if isinstance(getattr(_module, "current_platform", None), CpuPlatform):
        _module.current_platform = platforms._current_platform  # type: ignore[attr-defined]

# a GPU's Triton is there wherever a plan is served; the configuration asks before it takes the second model runner
sys.modules["vllm.config.vllm"].HAS_TRITON = True  # type: ignore[attr-defined]

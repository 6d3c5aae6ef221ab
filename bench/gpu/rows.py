"""Time the linear layers of one step by its rows, for the kernels that vLLM could take for each weight format.

usage: PYTHON -m bench.gpu.rows OUT [--kinds block,channel,...] [--rows 1,8,64,...]     (PYTHON: an engine release's)

One card. Times are milliseconds of all linear layers of Qwen3.8-27B together, each replayed from a CUDA graph over
copies of its weights that do not fit the L2 cache; quantising the activations is not in them.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import vllm._custom_ops as ops
from vllm.model_executor.layers.quantization.utils import marlin_utils
from vllm.scalar_type import scalar_types

# Output and input width of each fused layer and how many there are (qwenlab/data/models.yaml, tensor parallel 1).
LAYERS = {
    "gate_up": (34_816, 5_120, 64),
    "down": (5_120, 17_408, 64),
    "gdn_in": (16_384, 5_120, 48),
    "gdn_out": (5_120, 6_144, 48),
    "qkv": (14_336, 5_120, 16),
    "o": (5_120, 6_144, 16),
}
ROWS = (1, 2, 4, 5, 8, 9, 16, 17, 24, 25, 32, 33, 40, 41, 48, 49, 56, 57, 63, 64, 65, 80, 81, 96, 112, 128)
ROWS += (129, 256, 257, 512, 513, 1024, 1025, 2048, 2049, 4096, 4097, 8064, 8065, 8068)
BEYOND_L2 = 200_000_000  # bytes
GROUP = 128
Call = Callable[[], Any]
Weight = tuple[torch.Tensor, ...]


def milliseconds(calls: list[Call], times: int) -> float:
    """The quickest of three replays of `times` calls, per call."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in islice(cycle(calls), times):
            call()
    graph.replay()
    taken = []
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) / times)
    return min(taken)


def _fp8(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").to(torch.float8_e4m3fn)


def _packed(bits: int, out: int, inner: int) -> torch.Tensor:
    """Random packed weights as GPTQ lays them, [inner * bits / 32, out]."""
    return torch.randint(-(2**31), 2**31 - 1, (inner * bits // 32, out), device="cuda", dtype=torch.int32)


def _bf16(out: int, inner: int) -> Weight:
    return (torch.randn(out, inner, device="cuda").bfloat16(),)


def _block(out: int, inner: int) -> Weight:
    return _fp8(out, inner), torch.rand(out // GROUP, inner // GROUP, device="cuda").t()


def _channel(out: int, inner: int) -> Weight:
    return _fp8(out, inner), torch.rand(out, 1, device="cuda")


def _marlin(bits: int) -> Callable[[int, int], Weight]:
    def weight(out: int, inner: int) -> Weight:
        groups, group = (inner // GROUP, GROUP) if bits == 4 else (1, -1)
        scales = torch.rand(groups, out, device="cuda").bfloat16()
        return (
            ops.gptq_marlin_repack(_packed(bits, out, inner), inner, out, bits),
            marlin_utils.marlin_permute_scales(scales, inner, out, group),
            marlin_utils.marlin_make_workspace_new(torch.device("cuda", 0)),
        )

    return weight


def _machete(out: int, inner: int) -> Weight:
    packed = _packed(4, out, inner).t().contiguous().t()
    layout = ops.machete_prepack_B(packed, torch.bfloat16, scalar_types.uint4b8, torch.bfloat16)
    return layout, torch.rand(inner // GROUP, out, device="cuda").bfloat16()


def _mm(x: torch.Tensor, weight: Weight, y: torch.Tensor) -> Call:
    wide = x.bfloat16()
    return lambda: torch.mm(wide, weight[0].t(), out=y)


def _cutlass(x: torch.Tensor, weight: Weight, y: torch.Tensor) -> Call:
    small, (rows, inner) = x.to(torch.float8_e4m3fn), x.shape
    blocks = weight[1].shape[0] == inner // GROUP
    scale = torch.rand(inner // GROUP, rows, device="cuda").t() if blocks else torch.rand(rows, 1, device="cuda")
    return lambda: torch.ops._C.cutlass_scaled_mm(y, small, weight[0].t(), scale, weight[1], None)


def _cublas(dtype: torch.dtype) -> Callable[[torch.Tensor, Weight, torch.Tensor], Call]:
    """One scale per tensor, as vLLM's torch kernels ask; with a scale per channel they scale a float32 result."""

    def call(x: torch.Tensor, weight: Weight, y: torch.Tensor) -> Call:
        small, one = x.to(torch.float8_e4m3fn), torch.ones(1, device="cuda")
        return lambda: torch._scaled_mm(small, weight[0].t(), scale_a=one, scale_b=one, out_dtype=dtype)

    return call


def _rowwise(x: torch.Tensor, weight: Weight, y: torch.Tensor) -> Call:
    small, scale = x.to(torch.float8_e4m3fn), torch.rand(x.shape[0], 1, device="cuda")
    return lambda: torch._scaled_mm(
        small, weight[0].t(), scale_a=scale, scale_b=weight[1].t(), out_dtype=torch.bfloat16
    )


def _marlin_mm(kind: Any) -> Callable[[torch.Tensor, Weight, torch.Tensor], Call]:
    def call(x: torch.Tensor, weight: Weight, y: torch.Tensor) -> Call:
        wide, (rows, inner), out = x.bfloat16(), x.shape, y.shape[1]
        empty = torch.empty(0, dtype=torch.int, device="cuda") if kind == scalar_types.uint4b8 else None
        return lambda: torch.ops.vllm.marlin_gemm(
            wide,
            weight[0],
            None,
            weight[1],
            None,
            None,
            empty,
            weight[2],
            kind.id,
            size_m=rows,
            size_n=out,
            size_k=inner,
            use_atomic_add=False,
            use_fp32_reduce=True,
            is_zp_float=False,
        )

    return call


def _machete_mm(x: torch.Tensor, weight: Weight, y: torch.Tensor) -> Call:
    wide = x.bfloat16()
    return lambda: ops.machete_mm(
        a=wide, b_q=weight[0], b_type=scalar_types.uint4b8, b_group_scales=weight[1], b_group_size=GROUP
    )


# name: (bytes of a weight, its layout, the product)
KINDS: dict[str, tuple[float, Callable[[int, int], Weight], Callable[[torch.Tensor, Weight, torch.Tensor], Call]]] = {
    "bf16": (2, _bf16, _mm),
    "block": (1, _block, _cutlass),
    "channel": (1, _channel, _cutlass),
    "channel-cublas": (1, _channel, _cublas(torch.float32)),
    "tensor-cublas": (1, _channel, _cublas(torch.bfloat16)),
    "channel-torch": (1, _channel, _rowwise),
    "channel-marlin": (1, _marlin(8), _marlin_mm(scalar_types.float8_e4m3fn)),
    "int4-marlin": (0.5, _marlin(4), _marlin_mm(scalar_types.uint4b8)),
    "int4-machete": (0.5, _machete, _machete_mm),
}


def table(kind: str, rows: list[int]) -> dict[int, float]:
    """Milliseconds of a step's linear layers by rows."""
    size, layout, product = KINDS[kind]
    total = dict.fromkeys(rows, 0.0)
    for out, inner, count in LAYERS.values():
        copies = [layout(out, inner) for _ in range(int(-(-BEYOND_L2 // (out * inner * size))))]
        for number in total:
            x = torch.randn(number, inner, device="cuda")
            y = torch.empty(number, out, device="cuda", dtype=torch.bfloat16)
            calls = [product(x, weight, y) for weight in copies]
            total[number] += milliseconds(calls, 20 if number <= 128 else 4) * count
    return {number: round(value, 2) for number, value in total.items()}


def main() -> None:
    """Write one table per kind; a kind that this card or release does not take says why instead."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--kinds", default=",".join(KINDS))
    options.add_argument("--rows", default=",".join(map(str, ROWS)))
    given = options.parse_args()
    tables: dict[str, Any] = {}
    for kind in given.kinds.split(","):
        try:
            tables[kind] = table(kind, [int(number) for number in given.rows.split(",")])
        except Exception:
            tables[kind] = traceback.format_exc(limit=-2)
        given.out.write_text(json.dumps({"card": torch.cuda.get_device_name(), "ms": tables}, indent=1) + "\n")
        print(kind, tables[kind], flush=True)


if __name__ == "__main__":
    main()

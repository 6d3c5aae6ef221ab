"""Time the linear layers of one step by its rows, for CUTLASS's FP8 kernels with block and with channel scales.

usage: python bench/gpu/rows.py LIBRARY OUT     (LIBRARY: a release's vllm/_C_stable_libtorch.abi3.so)

Needs only torch and one card. Times are milliseconds of all linear layers of Qwen3.8-27B together, each replayed from a
CUDA graph over copies of its weights that do not fit the L2 cache.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch

# Output and input width of each fused layer and how many there are (qwenlab/data/models.yaml, tensor parallel 1).
LAYERS = {
    "gate_up": (34_816, 5_120, 64),
    "down": (5_120, 17_408, 64),
    "gdn_in": (16_384, 5_120, 48),
    "gdn_out": (5_120, 6_144, 48),
    "qkv": (14_336, 5_120, 16),
    "o": (5_120, 6_144, 16),
}
FEW = (1, 2, 4, 5, 8, 9, 16, 17, 24, 25, 32, 33, 40, 41, 48, 49, 56, 57, 63, 64, 65, 80, 81, 96, 112, 128)
MANY = (129, 256, 257, 512, 513, 1024, 1025, 2048, 2049, 4096, 4097, 8064, 8065, 8068)
BEYOND_L2 = 200_000_000  # bytes
GROUP = 128
Call = Callable[[], Any]


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


def weights(kind: str, out: int, inner: int) -> list[torch.Tensor]:
    """Copies of one layer's weight, [out, inner]."""
    dtype = torch.bfloat16 if kind == "bf16" else torch.float8_e4m3fn
    count = -(-BEYOND_L2 // (out * inner))
    return [torch.randn(out, inner, device="cuda").to(dtype) for _ in range(count)]


def call(kind: str, rows: int, weight: torch.Tensor, y: torch.Tensor) -> Call:
    """One matrix product of `rows` tokens, as vLLM calls it."""
    out, inner = weight.shape
    x = torch.randn(rows, inner, device="cuda")
    if kind == "bf16":
        wide = x.bfloat16()
        return lambda: torch.mm(wide, weight.t(), out=y)
    small = x.to(torch.float8_e4m3fn)
    if kind == "block":
        scale_x = torch.rand(inner // GROUP, rows, device="cuda").t()
        scale_w = torch.rand(out // GROUP, inner // GROUP, device="cuda").t()
    else:
        scale_x, scale_w = torch.rand(rows, 1, device="cuda"), torch.rand(out, 1, device="cuda")
    return lambda: torch.ops._C.cutlass_scaled_mm(y, small, weight.t(), scale_x, scale_w, None)


def table(kind: str) -> dict[int, float]:
    """Milliseconds of a step's linear layers by rows."""
    total = dict.fromkeys((*FEW, *MANY), 0.0)
    for out, inner, count in LAYERS.values():
        copies = weights(kind, out, inner)
        for rows in total:
            y = torch.empty(rows, out, device="cuda", dtype=torch.bfloat16)
            calls = [call(kind, rows, weight, y) for weight in copies]
            total[rows] += milliseconds(calls, 20 if rows in FEW else 4) * count
    return {rows: round(value, 2) for rows, value in total.items()}


def main() -> None:
    """Write the three tables."""
    library, target = sys.argv[1:]
    torch.ops.load_library(library)
    tables = {kind: table(kind) for kind in ("block", "channel", "bf16")}
    Path(target).write_text(json.dumps({"card": torch.cuda.get_device_name(), "ms": tables}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""CUTLASS's block FP8 on compute capability 9.0: which tile a step's rows get, and whether the results stay right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from card.elsewhere import Elsewhere
from probes.block_fp8 import made, spread

DEVICE, GROUP, REPEATS = "cuda", 128, 8
# [outer, inner] of the layers of one block of Qwen3.8-27B: MLP up and down, GDN in and out
SHAPES = ((34_816, 5_120), (5_120, 17_408), (16_384, 5_120), (5_120, 6_144))
ROWS = (1, 4, 8, 9, 16, 17, 40, 41, 44, 45, 48, 64, 65, 68, 128, 129, 132, 8_064, 8_065, 8_068)
QUANTIZED_ERROR = 0.06  # of the result's norm: what FP8 activations cost; a wrong scale costs all of it


@dataclass(frozen=True)
class Layer:
    """One block FP8 layer as the engine builds it, with drawn weights."""

    kernel: Any
    weight: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def drawn(cls, kernel: Any, outer: int, inner: int) -> Layer:
        draw = torch.Generator(DEVICE).manual_seed(outer)
        weight = torch.randn(outer, inner, generator=draw, device=DEVICE, dtype=torch.bfloat16)
        scale = torch.rand(outer // GROUP, inner // GROUP, generator=draw, device=DEVICE) + 0.5
        return cls(made(kernel, outer, inner), weight.to(torch.float8_e4m3fn), scale)

    def quantized(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, scales = self.kernel.quant_fp8.forward_cuda(x)
        return values, scales

    def product(self, values: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.kernel.apply_block_scaled_mm(values, self.weight, scales, self.scale)
        return out

    def error(self, out: torch.Tensor, x: torch.Tensor) -> float:
        """Distance from the product in float32, as a share of its norm."""
        exact = x.float() @ (self.weight.float() * spread(self.scale, *self.weight.shape)).t()
        return float((out.float() - exact).norm() / exact.norm())


def activations(rows: int, inner: int) -> torch.Tensor:
    """[rows, inner]; the rows that two counts share are the same."""
    draw = torch.Generator(DEVICE).manual_seed(inner)
    return torch.randn(max(ROWS), inner, generator=draw, device=DEVICE, dtype=torch.bfloat16)[:rows]


def milliseconds(act: Callable[[], object]) -> float:
    """Time of one `act`, replayed in a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        act()
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            act()
    best = float("inf")
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) / REPEATS)
    return best


def the_tile_fits_the_rows(figures: dict[str, Any]) -> None:
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.kernels.linear.scaled_mm.cutlass import CutlassFp8BlockScaledMMKernel
    from vllm.platforms import current_platform

    if not current_platform.is_device_capability(90):
        raise Elsewhere(f"compute capability {current_platform.get_device_capability()}")
    with set_current_vllm_config(VllmConfig()), torch.inference_mode():
        layers = [Layer.drawn(CutlassFp8BlockScaledMMKernel, *shape) for shape in SHAPES]
        times = figures["milliseconds"] = {}
        for rows in ROWS:
            times[rows] = round(_block_ms(layers, rows), 4)
        figures["errors"] = {
            rows: round(layers[3].error(_result(layers[3], rows), activations(rows, SHAPES[3][1])), 4) for rows in ROWS
        }
        worst = max(figures["errors"].values())
        assert worst < QUANTIZED_ERROR, f"the result is off by {worst} of its norm"
        for slow, fast in ((8_065, 8_068), (129, 132), (8, 9), (40, 41)):
            ratio = times[slow] / times[fast]
            assert ratio < 1.3, f"{slow:,} rows take {ratio:.1f} times as long as {fast:,}"
        shared, own = _result(layers[3], 8_068)[:8_065].float(), _result(layers[3], 8_065).float()
        figures["furthest"] = furthest = float((own - shared).abs().max() / shared.abs().max())
        assert furthest < 0.01, f"8,065 rows give other values than the same in 8,068: {furthest} of the largest"
        _compiled(layers[3], figures)
        _replayed(layers[3])


def _block_ms(layers: list[Layer], rows: int) -> float:
    given = [(layer, *layer.quantized(activations(rows, layer.weight.shape[1]))) for layer in layers]
    return milliseconds(lambda: [layer.product(values, scales) for layer, values, scales in given])


def _result(layer: Layer, rows: int) -> torch.Tensor:
    return layer.product(*layer.quantized(activations(rows, layer.weight.shape[1])))


def _compiled(layer: Layer, figures: dict[str, Any]) -> None:
    """One Inductor graph with a symbolic row count, quantization inside it, serves every row count."""

    def model(x: torch.Tensor) -> torch.Tensor:
        values, scales = layer.kernel.quant_fp8.forward_native(x)
        return layer.product(values, scales)

    run = torch.compile(model, fullgraph=True, dynamic=True)
    errors = figures["errors, compiled"] = {}
    for rows in (8_064, 8_065, 129, 8, 9):
        x = activations(rows, layer.weight.shape[1]).clone()
        torch._dynamo.mark_dynamic(x, 0)
        errors[rows] = round(layer.error(run(x), x), 4)
    worst = max(errors.values())
    assert worst < QUANTIZED_ERROR, f"compiled, the result is off by {worst} of its norm"


def _replayed(layer: Layer) -> None:
    """A captured step of 8 rows gives the right result for other rows than it was captured with."""
    x = activations(8, layer.weight.shape[1]).clone()
    _result(layer, 8)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = layer.product(*layer.quantized(x))
    x.copy_(activations(16, layer.weight.shape[1])[8:])
    graph.replay()
    torch.cuda.synchronize()
    assert layer.error(out, x) < QUANTIZED_ERROR, "a replayed graph gives the captured rows' result"

"""Rows that reach CUTLASS's block FP8 kernel on compute capability 9.0, with the compiled kernel stood in for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from probes.registry import Surroundings, probe

INNER, OUTER, GROUP = 256, 384, 128
HOPPER, BLACKWELL = 90, 100
Seen = list[tuple[torch.Tensor, torch.Tensor]]


def spread(scales: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """One scale per group as one per element."""
    wide = scales.repeat_interleave(rows // scales.shape[0], 0)
    return wide.repeat_interleave(columns // scales.shape[1], 1)


def product(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    """[rows, inner] x [inner, outer], both dequantized, in float32."""
    return (a.float() * spread(scale_a, *a.shape)) @ (b.float() * spread(scale_b, *b.shape))


@contextmanager
def card(capability: int) -> Iterator[tuple[Any, Seen]]:
    """The kernel class as on a card of that compute capability, and what reaches the compiled half."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.kernels.linear.scaled_mm import cutlass
    from vllm.platforms import current_platform

    seen: Seen = []

    def compiled(
        a: torch.Tensor, b: torch.Tensor, *, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
    ) -> torch.Tensor:
        seen.append((a, scale_a))
        return product(a, b, scale_a, scale_b).to(out_dtype)

    def asked(wanted: Any, *_a: Any, **_k: Any) -> bool:
        return wanted in (capability, divmod(capability, 10))

    with (
        set_current_vllm_config(VllmConfig()),
        mock.patch.object(cutlass.ops, "cutlass_scaled_mm", compiled),
        mock.patch.object(type(current_platform), "is_device_capability", staticmethod(asked)),
    ):
        yield cutlass.CutlassFp8BlockScaledMMKernel, seen


def made(kernel: Any, outer: int = OUTER, inner: int = INNER) -> Any:
    """The kernel of a block FP8 layer [outer, inner] of bfloat16 activations."""
    from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import FP8ScaledMMLinearLayerConfig
    from vllm.model_executor.layers.quantization.utils import quant_utils

    return kernel(
        FP8ScaledMMLinearLayerConfig(
            weight_quant_key=quant_utils.kFp8Static128BlockSym,
            activation_quant_key=quant_utils.kFp8Dynamic128Sym,
            weight_shape=(outer, inner),
            input_dtype=torch.bfloat16,
            out_dtype=torch.bfloat16,
        )
    )


def drawn(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Activation, weight and their scales; the activation's lie column by column, as the quantizer leaves them."""
    draw = torch.Generator().manual_seed(rows)
    a = torch.randn(rows, INNER, generator=draw).to(torch.float8_e4m3fn)
    b = torch.randn(OUTER, INNER, generator=draw).to(torch.float8_e4m3fn)
    scale_a = (torch.rand(INNER // GROUP, rows, generator=draw) + 0.5).t()
    scale_b = torch.rand(OUTER // GROUP, INNER // GROUP, generator=draw) + 0.5
    return a, b, scale_a, scale_b


def right(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> bool:
    return out.shape == (len(a), OUTER) and torch.equal(out, product(a, b.T, scale_a, scale_b.T).bfloat16())


# rows of a step -> rows that are handed over: no multiple of four selects the tile of 16 rows, one that of 128
GIVEN = {8065: 8068, 65: 68, 66: 68, 67: 68, 1: 1, 2: 2, 3: 3, 4: 5, 8: 9, 9: 9, 44: 45, 47: 47}
GIVEN |= {rows: rows for rows in (48, 49, 63, 64, 68, 8064)}


@probe("cutlass-rows-sm90")
def the_rows_select_the_tile_that_is_right_for_so_many(s: Surroundings) -> None:
    with card(HOPPER) as (kernel, seen):
        layer = made(kernel)
        for rows, expected in GIVEN.items():
            a, b, scale_a, scale_b = drawn(rows)
            out = layer.apply_block_scaled_mm(a, b, scale_a, scale_b)
            given, scales = seen.pop()
            assert len(given) == expected, f"for {rows} rows the kernel is given {len(given)}"
            assert scales.shape == (expected, INNER // GROUP)
            assert expected == 1 or scales.stride() == (1, expected), "the scales do not lie column by column"
            assert right(out, a, b, scale_a, scale_b), f"{rows} rows: other values"
            if expected == rows:
                assert given.data_ptr() == a.data_ptr(), f"{rows} rows were copied"
                assert scales.data_ptr() == scale_a.data_ptr(), f"the scales of {rows} rows were copied"
        compiled_once_for_all_row_counts(layer, seen)
    with card(BLACKWELL) as (kernel, seen):
        a, b, scale_a, scale_b = drawn(8065)
        made(kernel).apply_block_scaled_mm(a, b, scale_a, scale_b)
        assert len(seen.pop()[0]) == 8065, "another compute capability is padded too"


def compiled_once_for_all_row_counts(layer: Any, seen: Seen) -> None:
    """As vLLM compiles: one graph with a symbolic row count, traced at a multiple of four, its guards dropped."""
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        graphs.append(graph)
        return graph.forward

    def model(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
        return layer.apply_block_scaled_mm(a, b, scale_a, scale_b) * 2

    run = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    for rows, expected in ((8064, 8064), (67, 68), (8, 9), (3, 3)):
        a, b, scale_a, scale_b = drawn(rows)
        torch._dynamo.mark_dynamic(a, 0)
        torch._dynamo.mark_dynamic(scale_a, 0)
        out = run(a, b, scale_a, scale_b)
        given, _ = seen.pop()
        assert len(given) == expected, f"compiled, for {rows} rows the kernel is given {len(given)}"
        assert right(out / 2, a, b, scale_a, scale_b), f"{rows} rows, compiled: other values"
    assert len(graphs) == 1, f"{len(graphs)} graphs for four row counts"

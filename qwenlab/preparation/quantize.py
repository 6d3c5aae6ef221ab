"""Symmetric integer quantization by groups, packed as compressed-tensors' `pack-quantized` format has it.

A weight row is cut into groups; `scale = max |w| / qmax` of each group, stored in bfloat16, and `q = round(w / scale)`.
Codes are stored with an offset of 2^(bits-1), several to a 32-bit word, the first in the lowest bits
(compressed-tensors 0.17.0 compressors/pack_quantized; vLLM 0.33.0 compressed_tensors_wNa16.py reads it). The scale is
rounded before it is used, so no code is further off than half a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Words = NDArray[np.int32]
Halves = NDArray[np.uint16]

EMPTY_SCALE = np.float32(2.0**-20)  # of a group of zeros: any but 0


class PrecisionError(Exception):
    """A quantized tensor is further from its source than rounding explains."""


def from_bfloat16(values: Halves) -> Floats:
    """bfloat16 bits to float32."""
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(values: Floats) -> Halves:
    """float32 to bfloat16 bits, to the nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded: Halves = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )
    return rounded


def pack(codes: NDArray[np.int8], bits: int) -> Words:
    """Codes (rows, columns) in [-2^(bits-1), 2^(bits-1)) to words (rows, columns * bits / 32)."""
    per_word = 32 // bits
    shifted = (codes.astype(np.int16) + (1 << (bits - 1))).astype(np.uint32)
    grouped = shifted.reshape(codes.shape[0], -1, per_word)
    words = np.zeros(grouped.shape[:2], dtype=np.uint32)
    for position in range(per_word):
        words |= grouped[:, :, position] << np.uint32(bits * position)
    return words.view(np.int32)


@dataclass
class Error:
    """How far quantized weights are from their source.

    Attributes:
        max_abs: largest difference; bound: largest half step, which it may not exceed.
        squares, total: sums of squares of differences and of weights.
    """

    max_abs: float = 0.0
    bound: float = 0.0
    squares: float = 0.0
    total: float = 0.0

    def add(self, weights: Floats, restored: Floats, scales: Floats) -> None:
        """Take rows into account: weights and restored (rows, groups, group), scales (rows, groups, 1).

        Raises:
            PrecisionError: a weight is further off than half a step of its own group.
        """
        difference = np.abs(restored - weights)
        if not np.all(difference <= scales * np.float32(0.5001) + np.float32(1e-30)):
            raise PrecisionError(f"a weight is {float(difference.max()):g} off; it is damaged or not finite")
        self.max_abs = max(self.max_abs, float(difference.max()))
        self.bound = max(self.bound, float(scales.max()) * 0.5001)
        self.squares += float(np.square(difference, dtype=np.float64).sum())
        self.total += float(np.square(weights, dtype=np.float64).sum())

    @property
    def relative(self) -> float:
        """Norm of the difference over norm of the weights."""
        return float(np.sqrt(self.squares / self.total)) if self.total else 0.0

    def to_dict(self) -> dict[str, Any]:
        """As the manifest has it."""
        return {"max_abs_error": self.max_abs, "bound": self.bound, "relative_error": self.relative}


def quantize(weights: Floats, bits: int, group: int, error: Error) -> tuple[Words, Halves]:
    """Quantize rows.

    Args:
        weights: (rows, columns), columns a multiple of `group`.
        bits: 4 or 8.
        error: takes this part's error into account.

    Returns:
        Packed codes (rows, columns * bits / 32) and bfloat16 scales (rows, columns / group).
    """
    rows, columns = weights.shape
    most = (1 << (bits - 1)) - 1
    grouped = weights.reshape(rows, columns // group, group)
    largest = np.abs(grouped).max(axis=2, keepdims=True)
    stored = to_bfloat16(np.where(largest > 0, largest / np.float32(most), EMPTY_SCALE).astype(np.float32))
    scales = from_bfloat16(stored)
    codes = np.clip(np.rint(grouped / scales), -most - 1, most)
    error.add(grouped, codes.astype(np.float32) * scales, scales)
    return pack(codes.astype(np.int8).reshape(rows, columns), bits), stored.reshape(rows, columns // group)

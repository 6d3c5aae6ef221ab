"""Compute capabilities at which cards begin to differ in what they can run."""

from __future__ import annotations

ComputeCapability = tuple[int, int]

AMPERE: ComputeCapability = (8, 0)
ADA: ComputeCapability = (8, 9)
HOPPER: ComputeCapability = (9, 0)
BLACKWELL: ComputeCapability = (10, 0)

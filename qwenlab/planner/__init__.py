"""Pure planning: `HostInventory` and settings in, `HostPlan` out. No I/O, no pyinfra, no vLLM."""

from __future__ import annotations

from qwenlab.planner.planning import plan

__all__ = ["plan"]

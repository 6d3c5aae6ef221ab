"""Throughput model: decode, aggregate and prefill rates of an engine from data-sheet figures and fitted constants."""

from __future__ import annotations

from qwenlab.planner.throughput.acceptance import tokens_per_step
from qwenlab.planner.throughput.prefill import prefill_tok_s
from qwenlab.planner.throughput.step import step_ms
from qwenlab.planner.throughput.work import LAYERS, Link, Silicon, WeightTraffic, Work

__all__ = ["LAYERS", "Link", "Silicon", "WeightTraffic", "Work", "prefill_tok_s", "step_ms", "tokens_per_step"]

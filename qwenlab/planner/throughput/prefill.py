"""Rate at which a prompt is read."""

from __future__ import annotations

from qwenlab.planner.capabilities import HOPPER
from qwenlab.planner.throughput.calibration import Constants, constants
from qwenlab.planner.throughput.step import ATTENTION_SHARE, HIDDEN, flops_per_token, reduce_gb_s
from qwenlab.planner.throughput.work import LAYERS, Work

QUERY_WIDTH = 24 * 256  # query heads x head dimension


def prefill_tok_s(work: Work, with_constants: Constants | None = None, *, ideal: bool = False) -> float:
    """Prompt tokens per second, averaged over a prompt of `work.depth` tokens.

    GEMM and attention FLOPs per rank, plus two all-reduces per layer that move every token's hidden state. Pipeline
    stages work on successive chunks at once, so the slowest stage sets the rate. `ideal` gives an upper bound over all
    layer splits when `work.layers` puts as much as possible on the fastest stage.
    """
    c = with_constants or constants()
    if len(work.layers) == 1:
        return 1.0 / _stage_seconds(work, 0, c)
    seconds = [_stage_seconds(work, stage, c) for stage in range(len(work.layers))]
    return len(seconds) / sum(seconds) if ideal else 1.0 / max(seconds)


def _stage_seconds(work: Work, stage: int, c: Constants) -> float:
    """Seconds that one token of a prompt takes on a stage."""
    cards = work.cards[stage * work.tp : (stage + 1) * work.tp]
    share = work.layers[stage] / LAYERS
    attention = 2 * work.depth * QUERY_WIDTH * LAYERS * ATTENTION_SHARE * share  # causal: half of 4 x depth x width
    rates = []
    for card in cards if work.tp == 1 else dict.fromkeys(cards):
        eight = work.weights.kernel != "16" and card.fp8_tflops
        efficiency = c.hopper["prefill_16"] if card.compute_capability == HOPPER else c.prefill_efficiency["16"]
        gemm_rate = (card.fp8_tflops or 0.0) * c.prefill_efficiency["8"] if eight else card.fp16_tflops * efficiency
        attention_rate = card.fp16_tflops * c.prefill_efficiency["attention"]
        rates.append(flops_per_token(share, False) / gemm_rate + attention / attention_rate)
    seconds = max(rates) / work.tp / 1e12
    if work.tp > 1:
        moved = 2 * work.layers[stage] * 2 * (work.tp - 1) / work.tp * HIDDEN * 2
        seconds += moved / (reduce_gb_s(work, cards, c) * 1e9)
    return seconds

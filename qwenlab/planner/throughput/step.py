"""Time of one decode step: a roofline on bytes and FLOPs per stage, all-reduces by link, the drafter, the host."""

from __future__ import annotations

from math import ceil, hypot, log2

from qwenlab.planner.capabilities import HOPPER
from qwenlab.planner.throughput.calibration import Constants, constants
from qwenlab.planner.throughput.work import GB, LAYERS, Link, Silicon, WeightTraffic, Work

ATTENTION_SHARE = 0.25  # every fourth layer keeps a KV cache, the others a recurrent state
HIDDEN = 5120
BODY_PARAMETERS = 24.4e9
HEAD_PARAMETERS = 1.27e9
OVERLAP = 4  # host and GPU overlap well, not perfectly: a soft maximum
STATE_ELEMENTS = 48 * 128 * 128  # of one GDN layer


def step_ms(
    work: Work, with_constants: Constants | None = None, *, streams: int | None = None, ideal: bool = False
) -> float:
    """Milliseconds from one verified token block of a stream to its next, all streams decoding together.

    `streams` stands in for `work.streams`. `ideal` gives a lower bound over all layer splits when `work.layers` puts
    as much as possible on the fastest stage: the slowest of several stages is never below their mean.

    Pipeline stages work one after the other for one stream; with more streams they overlap until the slowest is busy.
    """
    c = with_constants or constants()
    stages = len(work.layers)
    together = work.streams if streams is None else streams
    if stages == 1:
        gpu = _stage_ms(work, 0, together, c)
    else:
        groups = min(stages, together)
        times = [_stage_ms(work, stage, together / groups, c) for stage in range(stages)]
        gpu = sum(times)
        if not ideal:
            gpu = max(gpu + c.stage_ms * (stages - 1), groups * max(times) / (c.stage_overlap if groups > 1 else 1.0))
    if work.draft is not None and work.backend in c.piecewise:
        passes = work.draft_tokens if work.draft == "mtp" else 1
        host = c.host_ms["several" if work.tp > 1 else "one"] + passes * c.host_ms["pass"]
        return float((gpu**OVERLAP + host**OVERLAP) ** (1 / OVERLAP))
    return gpu


def _stage_ms(work: Work, stage: int, streams: float, c: Constants) -> float:
    cards = work.cards[stage * work.tp : (stage + 1) * work.tp]
    last = stage == len(work.layers) - 1
    if work.tp == 1:
        total = _rank_ms(work, stage, cards[0], streams, c)
    else:
        tokens = streams * (work.draft_tokens + 1)
        reduces = 2 * work.layers[stage] + (2 if last else 0)
        total = max(_rank_ms(work, stage, card, streams, c) for card in dict.fromkeys(cards))
        total += reduces * _reduce_us(work, cards, tokens, c) / 1e3
    return total + (c.step_ms + _draft_fixed_ms(work, cards, c) if last else 0.0)


def _rank_ms(work: Work, stage: int, card: Silicon, streams: float, c: Constants) -> float:
    """Kernels of one card: weights read once, states and cache per stream, FLOPs per token."""
    share = work.layers[stage] / LAYERS
    last = stage == len(work.layers) - 1
    tokens = streams * (work.draft_tokens + 1)
    read = card.bandwidth_gb_s * c.read_efficiency
    w, tp = work.weights, work.tp
    weight_gb = w.body * share / _body_read(card, w, c) + (w.head if last else 0.0)
    gemm = hypot(weight_gb / tp / read * 1e3, _compute_ms(card, w.kernel, flops_per_token(share, last), tokens, c) / tp)
    gdn_layers = LAYERS * (1 - ATTENTION_SHARE) * share
    state_gb = streams * (work.draft_tokens + 2) * gdn_layers * STATE_ELEMENTS * work.state_bytes / tp / GB
    if work.draft_tokens and card.compute_capability == HOPPER:
        state_gb /= c.hopper["verify_state"]
    drafting = _draft_read_gb(work) / tp / read * 1e3 if last and work.draft is not None else 0.0
    return (
        gemm
        + state_gb / read * 1e3
        + _cache_ms(work, card, share, streams, c)
        + drafting
        + c.layer_us * LAYERS * share / 1e3
    )


def _body_read(card: Silicon, weights: WeightTraffic, c: Constants) -> float:
    """Share of the usual read rate that the layers' weights reach."""
    if card.compute_capability != HOPPER:
        return 1.0
    return c.hopper.get(f"read_packed_{weights.packed_bits}" if weights.packed_bits else f"read_{weights.kernel}", 1.0)


def _compute_ms(card: Silicon, kernel: str, flops: float, tokens: float, c: Constants) -> float:
    """Multiplying the weights of one stage by `tokens` rows, of `flops` each.

    CUTLASS's FP8 on compute capability 9.0 works on whole tiles of 128 rows: all of it above one tile, the kernel with
    a scale per block from `few_rows` on.
    """
    rate = _tensor_tflops(card, kernel, c)
    if kernel != "16" and card.compute_capability == HOPPER and tokens > c.hopper["tile_rows"]:
        tokens = ceil(tokens / c.hopper["tile_rows"]) * c.hopper["tile_rows"]
    wide_tile = c.hopper["few_rows"] < tokens <= c.hopper["tile_rows"]
    if wide_tile and kernel == "8-block" and card.compute_capability == HOPPER:
        tokens = c.hopper["tile_rows"]
        rate *= c.hopper["tile_efficiency"] / c.compute_efficiency["8"]
    return tokens * flops / (rate * 1e12) * 1e3


def flops_per_token(share: float, last: bool) -> float:
    """Multiply-adds of the weights one token passes, counted as two."""
    return 2 * (BODY_PARAMETERS * share + (HEAD_PARAMETERS if last else 0.0))


def _tensor_tflops(card: Silicon, kernel: str, c: Constants) -> float:
    """Rate that GEMMs reach on this card: 8-bit inputs where both the checkpoint and the card have them."""
    if kernel != "16" and card.fp8_tflops:
        return card.fp8_tflops * c.compute_efficiency["8"]
    return card.fp16_tflops * c.compute_efficiency["16"]


def _cache_ms(work: Work, card: Silicon, share: float, streams: float, c: Constants) -> float:
    """Reading the KV cache of all streams; tensor parallel splits the four KV heads, no further."""
    efficiency = c.attention_read["verify" if work.draft_tokens else "decode"][work.backend]
    kv_gb = streams * work.depth * work.kv_bytes * LAYERS * ATTENTION_SHARE * share / min(work.tp, 4) / GB
    return kv_gb / (card.bandwidth_gb_s * efficiency) * 1e3


def _reduce_us(work: Work, cards: tuple[Silicon, ...], tokens: float, c: Constants) -> float:
    if work.tp == 1:
        return 0.0
    moved = 2 * (work.tp - 1) / work.tp * tokens * HIDDEN * 2
    hops = 1.0 if work.link is Link.NVSWITCH else log2(work.tp)
    return c.reduce_us[work.link.value] * hops + moved / (reduce_gb_s(work, cards, c) * 1e3)


def reduce_gb_s(work: Work, cards: tuple[Silicon, ...], c: Constants) -> float:
    """Rate (1e9 bytes a second) of a long all-reduce between these cards: over PCIe the narrowest slot limits it."""
    rate = c.reduce_gb_s[work.link.value]
    if work.link in (Link.NVSWITCH, Link.NVLINK):
        return rate
    return min(rate, min(card.pcie_gb_s for card in cards))


def _draft_read_gb(work: Work) -> float:
    w = work.weights
    if work.draft == "mtp":
        return work.draft_tokens * (w.mtp + w.draft_head)
    return work.drafter_gb + w.head if work.draft else 0.0


def _draft_fixed_ms(work: Work, cards: tuple[Silicon, ...], c: Constants) -> float:
    if work.draft is None:
        return 0.0
    if work.draft == "mtp":
        return work.draft_tokens * (c.mtp_ms + 4 * _reduce_us(work, cards, 1, c) / 1e3)
    return c.dflash_ms + 12 * _reduce_us(work, cards, work.draft_tokens + 1, c) / 1e3

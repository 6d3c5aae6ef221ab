"""Speculative decoding: method, draft length, and what the drafter needs beside it."""

from __future__ import annotations

from typing import Any

from packaging.version import Version

from qwenlab.planner.plan import Evidence, Workload
from qwenlab.planner.rules.context import HOPPER, Context
from qwenlab.planner.rules.model import Effect, Rule, Topic

OPTION = "speculative-config"
KEEPS_LAST_BLOCK = Version("0.33.0")  # from here on a block drafter no longer drops the last matched block


def _mtp(context: Context) -> Effect:
    config: dict[str, Any] = {"method": "mtp", "num_speculative_tokens": context.draft_tokens}
    return Effect(args={OPTION: config}, says={"k": context.draft_tokens})


def _dflash(context: Context) -> Effect:
    config: dict[str, Any] = {
        "method": "dflash",
        "model": context.drafter_path,
        "num_speculative_tokens": context.draft_tokens,
    }
    return Effect(args={OPTION: config}, says={"k": context.draft_tokens})


def _drafter_backend(context: Context) -> Effect:
    backend = context.shape.drafter_attention_backend
    return Effect(args={OPTION: {"attention_backend": backend}}, says={"backend": backend})


def _one_hopper_card(context: Context) -> bool:
    alone = context.shape.tp == context.shape.pp == 1
    return alone and all(card.compute_capability == HOPPER for card in context.cards)


RULES = (
    Rule(
        id="mtp",
        topic=Topic.SPECULATION,
        when="speculation with the checkpoint's MTP head",
        applies=lambda c: c.method == "mtp",
        then=_mtp,
        because="MTP with {k} draft tokens: the checkpoint's own head, no second model; the knee lies at 4 tokens "
        "(3 on FlashInfer fp8), more cost a step and are seldom accepted",
        source="syv-ai/HyperQwen single-user/README.md; noonghunna/club-3090 (draft depth on INT4)",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="dflash2",
        topic=Topic.SPECULATION,
        when="speculation with the DFlash2 drafter",
        applies=lambda c: c.method == "dflash",
        then=_dflash,
        because="DFlash2 drafts {k} tokens in one pass: 3.1 to 3.4 accepted per step in short chat, more where answers "
        "quote the prompt; the method is named because vLLM would guess it from the path",
        source="syv-ai/HyperQwen docs/optimizations.md, docs/gotchas.md 14",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="probabilistic-drafts",
        topic=Topic.SPECULATION,
        when="any speculation",
        applies=lambda c: c.method is not None,
        then=lambda _: Effect(args={OPTION: {"draft_sample_method": "probabilistic"}}),
        because="vLLM's default draws drafts greedily and loses 16 to 20 % of the acceptance when requests sample",
        source="syv-ai/HyperQwen #73",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="fp8-draft-head",
        topic=Topic.SPECULATION,
        when="MTP over a 16-bit head on compute capability 9.0, from vLLM 0.33.0",
        applies=lambda c: c.shape.draft_head is not None,
        then=lambda c: Effect(args={OPTION: {"draft_lm_head_quantization": c.shape.draft_head}}),
        because="every draft reads the whole head; an 8-bit copy halves that for 1.2 GiB, and the target still checks "
        "with its own",
        source="vLLM 0.33.0 config/speculative.py, quantization/online/lm_head.py; run on an NVIDIA H200 (bench/gpu)",
        evidence=Evidence.DERIVED,
        sets=(OPTION,),
    ),
    Rule(
        id="seven-drafts-above-one-card",
        topic=Topic.SPECULATION,
        when="DFlash2 above one card",
        applies=lambda c: c.method == "dflash" and c.world > 1 and c.draft_tokens <= 7,
        then=lambda _: Effect(),
        because="the drafter is trained for 7 tokens; 15 above one card lost 27 % at TP=2 and 42 % at TP=4",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #40, #105",
        evidence=Evidence.MEASURED,
        sets=(),
    ),
    Rule(
        id="drafter-attention-backend",
        topic=Topic.SPECULATION,
        when="DFlash2 with a backend of its own for the drafter",
        applies=lambda c: c.method == "dflash" and c.shape.drafter_attention_backend is not None,
        then=_drafter_backend,
        because="{backend} for the drafter's five sliding-window layers: it runs non-causal attention at this KV data "
        "type and takes the target's block size, so that no half-empty blocks are held (about 4 % per step on Ada and "
        "later)",
        source="ExTV/dual-gpus-vllm docs/how-it-works.md; syv-ai/HyperQwen docs/gotchas.md 40; vLLM 0.33.0 "
        "layers/attention/attention.py _largest_kernel_block_within",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="keep-last-block",
        topic=Topic.SPECULATION,
        when="DFlash2 with prefix caching before vLLM 0.33",
        applies=lambda c: c.method == "dflash" and c.shape.prefix_cache and c.vllm < KEEPS_LAST_BLOCK,
        then=lambda _: Effect(args={OPTION: {"disable_eagle_block_drop": True}}),
        because="before 0.33 a block drafter drops the last matched block and, with recurrent states, thereby reuses "
        "nothing at all; its KV does not depend on the next token, so nothing needs dropping",
        source="ExTV/dual-gpus-vllm docs/benchmarks.md (0.8 s against 2.1 to 11 s per turn); vLLM 0.33.0 "
        "config/speculative.py needs_eagle_block_drop",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="async-scheduling",
        topic=Topic.SPECULATION,
        when="asynchronous scheduling",
        applies=lambda c: c.shape.async_scheduling,
        then=lambda _: Effect(args={"async-scheduling": True}),
        because="the next step is scheduled while the card computes; with a pipeline and a drafter the synchronous "
        "scheduler asserts in prepare_inputs and the engine dies",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #160 (55.6 -> 134.2 tok/s at four streams); vllm-project/vllm "
        "#52071",
        evidence=Evidence.MEASURED,
        sets=("async-scheduling",),
    ),
    Rule(
        id="synchronous-scheduling",
        topic=Topic.SPECULATION,
        when="synchronous scheduling",
        applies=lambda c: not c.shape.async_scheduling,
        then=lambda _: Effect(args={"no-async-scheduling": True}),
        because="asked for: it costs under 1 % on one card and holds fewer blocks per request",
        source="syv-ai/HyperQwen docs/gotchas.md 18, 19",
        evidence=Evidence.MEASURED,
        sets=("no-async-scheduling",),
    ),
    Rule(
        id="few-drafts-in-batches",
        topic=Topic.SPECULATION,
        when="MTP, workload batch, one card of compute capability 9.0",
        applies=lambda c: c.method == "mtp" and c.workload is Workload.BATCH and _one_hopper_card(c),
        then=lambda _: Effect(),
        because="this card multiplies 128 rows in the time of 64, so a draft costs little: 64 requests get 5,221 tok/s "
        "with one draft, 4,816 with two and 4,097 with none",
        source="vLLM 0.33.0 on an NVIDIA H200 (bench/gpu)",
        evidence=Evidence.MEASURED,
        sets=(),
    ),
    Rule(
        id="no-speculation-in-batches",
        topic=Topic.SPECULATION,
        when="no speculation, workload batch",
        applies=lambda c: c.method is None and c.workload is Workload.BATCH,
        then=lambda _: Effect(),
        because="from about eight concurrent requests on the cards are busy without drafts, and each drafted request "
        "holds several recurrent states: speculation would cost seats and throughput",
        source="syv-ai/HyperQwen README (decision tree), batch/README.md; measured on an H200 with vLLM 0.30.0: 52 of "
        "64 requests resident with 7 drafts",
        evidence=Evidence.MEASURED,
        sets=(),
    ),
)

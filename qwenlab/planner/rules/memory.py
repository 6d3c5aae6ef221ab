"""Lengths, seats, the KV pool and what the prefix cache keeps."""

from __future__ import annotations

from packaging.version import Version

from qwenlab.planner.plan import Evidence
from qwenlab.planner.rules.context import Context
from qwenlab.planner.rules.model import Effect, Rule, Topic, always

GIB = 1 << 30
POOL_GROWS = Version("0.29.0")
SMALL_CARD_GIB = 12.5
VISION_PIXELS = {"shortest_edge": 65_536, "longest_edge": 2_097_152}  # longest: 2,048 image tokens
LONG_PREFILL_FROM = 4096


def _unequal_pools(context: Context) -> bool:
    return context.shape.pp > 1 and context.blocks is not None


def _pin(context: Context) -> Effect:
    size = context.kv_bytes or 0
    return Effect(args={"kv-cache-memory-bytes": size}, says={"gib": f"{size / GIB:.2f}"})


def _blocks(context: Context) -> Effect:
    return Effect(args={"num-gpu-blocks-override": context.blocks}, says={"blocks": f"{context.blocks:,}"})


def _block_size(context: Context) -> Effect:
    layout = context.layout
    return Effect(
        args={"block-size": layout.block_size}, says={"size": layout.block_size, "own": layout.own_block_size}
    )


def _retention(context: Context) -> Effect:
    size = context.layout.block_size
    return Effect(args={"prefix-cache-retention-interval": size}, says={"size": size})


def _seats(context: Context) -> Effect:
    states = context.layout.state_blocks_per_request
    return Effect(
        args={"max-num-seqs": context.shape.max_num_seqs}, says={"seats": context.shape.max_num_seqs, "states": states}
    )


def _several_long_prompts(context: Context) -> bool:
    return context.shape.max_num_seqs > 1 and context.shape.max_num_batched_tokens >= LONG_PREFILL_FROM


RULES = (
    Rule(
        id="max-model-len",
        topic=Topic.MEMORY,
        when="always",
        applies=always,
        then=lambda c: Effect(
            args={"max-model-len": c.shape.max_model_len}, says={"tokens": f"{c.shape.max_model_len:,}"}
        ),
        because="{tokens} tokens: what was asked for, or the longest context whose one request fits the pool",
        source="vLLM 0.33.0 v1/core/kv_cache_planning.py (boot needs one full-length request)",
        evidence=Evidence.DERIVED,
        sets=("max-model-len",),
    ),
    Rule(
        id="seats-by-recurrent-states",
        topic=Topic.MEMORY,
        when="always",
        applies=always,
        then=_seats,
        because="{seats} seats: however short, each request holds {states} blocks of recurrent state, so more seats "
        "would wait for blocks; above the number of blocks vLLM refuses to start",
        source="vLLM 0.33.0 config/compilation.py ('exceeds available Mamba cache blocks'); syv-ai/HyperQwen "
        "docs/gotchas.md 25, 29",
        evidence=Evidence.DERIVED,
        sets=("max-num-seqs",),
    ),
    Rule(
        id="batched-tokens",
        topic=Topic.MEMORY,
        when="always",
        applies=always,
        then=lambda c: Effect(
            args={"max-num-batched-tokens": c.shape.max_num_batched_tokens},
            says={"tokens": f"{c.shape.max_num_batched_tokens:,}"},
        ),
        because="{tokens} tokens per prefill step: larger chunks take pool (4,096 cost 2.4 % and 8,192 did not start "
        "on a 24 GB card), smaller ones leave the tensor cores idle",
        source="syv-ai/HyperQwen docs/gotchas.md 7, 43; ExTV/dual-gpus-vllm docs/how-it-works.md",
        evidence=Evidence.MEASURED,
        sets=("max-num-batched-tokens",),
    ),
    Rule(
        id="fair-long-prefill",
        topic=Topic.MEMORY,
        when="several seats and 4,096 or more batched tokens",
        applies=_several_long_prompts,
        then=lambda c: Effect(args={"long-prefill-token-threshold": c.shape.max_num_batched_tokens // 2}),
        because="a long prompt takes at most half a step while others wait: a short request behind a 60K prompt waited "
        "5.5 s instead of 14.8 s; a prompt that is alone takes whole steps",
        source="noonghunna/club-3090 (head-of-line blocking); vLLM 0.32.0 and 0.33.0 v1/core/sched/scheduler.py",
        evidence=Evidence.MEASURED,
        sets=("long-prefill-token-threshold",),
    ),
    Rule(
        id="aligned-block-size",
        topic=Topic.MEMORY,
        when="vLLM's own block size wastes blocks",
        applies=lambda c: c.layout.block_size != c.layout.own_block_size,
        then=_block_size,
        because="{size} tokens per block instead of vLLM's {own}: a multiple that the drafter's kernels run too, so "
        "that its window takes a handful of full blocks instead of dozens of nearly empty ones",
        source="ExTV/dual-gpus-vllm docs/how-it-works.md (1664); vLLM 0.33.0 platforms/interface.py, "
        "v1/core/kv_cache_planning.py",
        evidence=Evidence.DERIVED,
        sets=("block-size",),
    ),
    Rule(
        id="pinned-pool",
        topic=Topic.MEMORY,
        when="the plan gives the pool's size",
        applies=lambda c: c.kv_bytes is not None,
        then=_pin,
        because="{gib} GiB of KV per card, counted and pinned: a pinned pool starts or is refused at once, while one "
        "sized by profiling moves by 0.9 GiB with the state of the compile cache and fails at the first prompt",
        source="syv-ai/HyperQwen docs/multi-gpu.md, docs/gotchas.md 2, 48",
        evidence=Evidence.MEASURED,
        sets=("kv-cache-memory-bytes",),
    ),
    Rule(
        id="small-cards-are-pinned",
        topic=Topic.MEMORY,
        when="cards of 12 GiB and less on vLLM 0.29 and later",
        applies=lambda c: (
            c.kv_bytes is not None
            and min(card.memory_gib for card in c.cards) <= SMALL_CARD_GIB
            and c.vllm >= POOL_GROWS
        ),
        then=_pin,
        because="from 0.29 on vLLM gives a small card 0.6 GiB more pool than its warm-up leaves room for, and runs "
        "out of memory before it answers",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #68, #210",
        evidence=Evidence.MEASURED,
        sets=("kv-cache-memory-bytes",),
    ),
    Rule(
        id="equal-blocks-per-stage",
        topic=Topic.MEMORY,
        when="pipeline stages with a planned pool",
        applies=_unequal_pools,
        then=_blocks,
        because="{blocks} blocks on every stage: each allocates for its own layers only, and one byte figure for "
        "unequal stages would be cut to the fuller card",
        source="ExTV/dual-gpus-vllm launchers (num-gpu-blocks-override)",
        evidence=Evidence.MEASURED,
        sets=("num-gpu-blocks-override",),
    ),
    Rule(
        id="memory-utilization",
        topic=Topic.MEMORY,
        when="always",
        applies=always,
        then=lambda c: Effect(args={"gpu-memory-utilization": c.utilization}, says={"share": f"{c.utilization:.0%}"}),
        because="at boot vLLM wants {share} of each card free; beside a pinned pool this is a test only, without one "
        "it also sizes the pool",
        source="ExTV/dual-gpus-vllm docs/how-it-works.md; vLLM 0.33.0 v1/worker/utils.py request_memory",
        evidence=Evidence.MEASURED,
        sets=("gpu-memory-utilization",),
    ),
    Rule(
        id="prefix-cache",
        topic=Topic.MEMORY,
        when="prefix caching",
        applies=lambda c: c.shape.prefix_cache,
        then=lambda _: Effect(args={"enable-prefix-caching": True}),
        because="follow-up turns start where the last one ended (23 s -> 1 s for a 24k document); vLLM then keeps "
        "recurrent states at block boundaries by itself (mamba-cache-mode says nothing more, and is gone after 0.33)",
        source="syv-ai/HyperQwen docs/long-context.md, #6, #47, #52, #174; vLLM 0.32.0 "
        "model_executor/models/config.py, 0.33.0 engine/arg_utils.py",
        evidence=Evidence.MEASURED,
        sets=("enable-prefix-caching",),
    ),
    Rule(
        id="no-prefix-cache",
        topic=Topic.MEMORY,
        when="no prefix caching",
        applies=lambda c: not c.shape.prefix_cache,
        then=lambda _: Effect(args={"no-enable-prefix-caching": True}),
        because="prompts of this workload share no beginning, and without the cache each request holds one recurrent "
        "state less (+16 % pool in the batch profile)",
        source="syv-ai/HyperQwen batch/README.md (223,821 against 193,298 tokens)",
        evidence=Evidence.MEASURED,
        sets=("no-enable-prefix-caching",),
    ),
    Rule(
        id="retention-is-one-block",
        topic=Topic.MEMORY,
        when="prefix caching",
        applies=lambda c: c.shape.prefix_cache,
        then=_retention,
        because="a recurrent state is kept every {size} tokens, one block: the default keeps the last one only, which "
        "is the one that a follow-up turn with speculation may not use (11 s per turn instead of 0.8 s)",
        source="ExTV/dual-gpus-vllm docs/benchmarks.md; syv-ai/HyperQwen docs/vllm-0.30.md",
        evidence=Evidence.MEASURED,
        sets=("prefix-cache-retention-interval",),
    ),
    Rule(
        id="text-only",
        topic=Topic.MEMORY,
        when="no vision",
        applies=lambda c: not c.shape.vision,
        then=lambda _: Effect(args={"language-model-only": True}),
        because="no images asked for: the vision tower's 0.86 GiB stay free",
        source="syv-ai/HyperQwen docs/gotchas.md 8",
        evidence=Evidence.MEASURED,
        sets=("language-model-only",),
    ),
    Rule(
        id="bounded-images",
        topic=Topic.MEMORY,
        when="vision",
        applies=lambda c: c.shape.vision,
        then=lambda _: Effect(
            args={
                "limit-mm-per-prompt": {"video": 0},
                "mm-processor-kwargs": {"size": VISION_PIXELS},
            }
        ),
        because="the encoder is profiled at the largest image that is allowed, so a cap of 2 megapixels (2,048 image "
        "tokens) and no video protect the pool",
        source="syv-ai/HyperQwen docs/gotchas.md 8; ExTV/dual-gpus-vllm launchers",
        evidence=Evidence.MEASURED,
        sets=("limit-mm-per-prompt", "mm-processor-kwargs"),
    ),
)

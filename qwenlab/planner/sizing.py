"""The engine shape of a recipe on given cards, and what its memory allows: window, requests at once, seats, chunks."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from qwenlab.planner.assignment import Assignment
from qwenlab.planner.capabilities import HOPPER
from qwenlab.planner.catalogue import CheckpointSpec
from qwenlab.planner.demand import Demand
from qwenlab.planner.memory import Kind, budget
from qwenlab.planner.plan import Speculation
from qwenlab.planner.recipes import Method, Recipe, copies_head
from qwenlab.planner.shape import EngineShape

LONGEST = 262_144  # tokens: the model's own window
PIPELINE_BATCHED_TOKENS = 1024  # 2,048 gave no speed and 4,096 ran out of memory (ExTV/dual-gpus-vllm)
BATCHED_TOKENS = 2048  # larger chunks cost pool (HyperQwen docs/gotchas.md 7 and 43)
LARGE_BATCHED_TOKENS = 8192  # vLLM's own default on data-centre cards
PROBE_TOKENS = 1024  # a short request: what is left of a seat when the recurrent states are paid


def longest_window(shape: EngineShape) -> int:
    """The longest context of a shape whose length is the model's own; 0 when there is no pool or it is tiny.

    One budget instead of `memory.largest`, which answers the same from 18: blocks of attention groups grow with the
    window, those of states and of the drafter's sliding window do not once the window is longer than a few thousand.
    """
    kv_pool = budget(shape).pool
    if kv_pool is None:
        return 0
    layout = kv_pool.layouts[0]
    growing = [group for group in layout.groups if group.kind is Kind.ATTENTION]
    fixed = layout.blocks_to_boot - sum(group.blocks_per_request for group in growing)
    rows = (kv_pool.num_blocks - fixed) // len(growing)
    return max(0, min(shape.max_model_len, rows * layout.block_size))


def residency(shape: EngineShape, demand: Demand, streams: int) -> tuple[EngineShape, int]:
    """The shape, and how many requests of the demand are resident at once.

    The prefix cache keeps one more recurrent state per request; where that costs throughput seats, it is left out.
    """
    tokens = min(shape.max_model_len, demand.depth + demand.answer)
    kv_pool = budget(shape).pool
    resident = max(1, kv_pool.seats(tokens)) if kv_pool else 1
    if demand.additive and resident < streams:
        without = replace(shape, prefix_cache=False)
        kv_pool = budget(without).pool
        more = kv_pool.seats(tokens) if kv_pool else 0
        if more > resident:
            return without, more
    return shape, resident


@cache
def _speculation(method: Method, tokens: int) -> Speculation:
    return Speculation(method=method, tokens=tokens)


def shape_of(assignment: Assignment, spec: CheckpointSpec, recipe: Recipe, split: tuple[int, ...]) -> EngineShape:
    """The engine shape of a recipe on a layer split, with the demand's seats and the default chunk of a prompt."""
    place, demand = assignment.place, assignment.demand
    lowest = min(card.compute_capability for card in place.cards)
    return EngineShape(
        checkpoint=spec.key,
        cards=place.cards,
        vllm=assignment.knobs.vllm,
        drafter=spec.drafters[0] if recipe.method == "dflash" else None,
        speculation=_speculation(recipe.method, recipe.tokens) if recipe.method else None,
        tp=place.tp,
        pp=place.pp,
        partition=split if place.pp > 1 else None,
        kv_dtype=recipe.kv_dtype,
        # vLLM's fused recurrence kernel takes bfloat16 or float32 only (measured on an H200, vLLM 0.30.0).
        ssm_dtype="bfloat16" if lowest >= HOPPER else "float16",
        attention_backend=recipe.backend,
        drafter_attention_backend=recipe.drafter_backend,
        draft_head="fp8" if copies_head(recipe, spec) else None,
        max_num_seqs=demand.seats,
        max_num_batched_tokens=PIPELINE_BATCHED_TOKENS if place.pp > 1 else BATCHED_TOKENS,
        vision=demand.vision,
    )


def settled(shape: EngineShape) -> EngineShape:
    """The shape with seats that its recurrent states can hold, and larger prompt chunks where they cost nothing."""
    kv_pool = budget(shape).pool
    if kv_pool is not None:
        shape = replace(shape, max_num_seqs=max(1, min(shape.max_num_seqs, kv_pool.seats(PROBE_TOKENS))))
    if shape.pp == 1:
        larger = replace(shape, max_num_batched_tokens=LARGE_BATCHED_TOKENS)
        fitting = budget(larger)
        enough = fitting.pool is not None and fitting.pool.seats(PROBE_TOKENS) >= shape.max_num_seqs
        if fitting.fits and enough:
            return larger
    return shape

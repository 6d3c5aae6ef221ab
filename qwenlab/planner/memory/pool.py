"""The KV pool of one engine replica: blocks and tokens from bytes, and the other way round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from qwenlab.planner.memory.config import KvConfig, config_of
from qwenlab.planner.memory.errors import MemoryModelError
from qwenlab.planner.memory.layout import GIB, KvLayout, blocks_by_length, layout_of
from qwenlab.planner.memory.structure import Kind
from qwenlab.planner.memory.versions import pool_rules
from qwenlab.planner.shape import EngineShape


@dataclass(frozen=True)
class KvPool:
    """The pool as vLLM reports it.

    Attributes:
        num_blocks: on every card; the smallest of all stages counts.
        pool_tokens: vLLM's "GPU KV cache size": full-length requests that fit, times that length.
        concurrency: full-length requests that fit.
        bytes_per_stage: bytes that one card of each stage really allocates.
        layouts: one per stage.
        refusal: vLLM's reason for not starting, in its own terms; None when there are enough blocks for one full-length
            request (and for the null block from 0.29 on).
    """

    num_blocks: int
    block_size: int
    pool_tokens: int
    concurrency: float
    bytes_per_stage: tuple[int, ...]
    layouts: tuple[KvLayout, ...]
    refusal: str | None

    def seats(self, tokens: int, *, at_most: int = 4096) -> int:
        """Requests of `tokens` tokens each that are resident at once."""
        usable = self.num_blocks - (self.layouts[0].blocks_to_boot - self.layouts[0].blocks_per_request)
        return min(at_most, max(0, usable) // self.layouts[0].blocks_for(tokens))


@lru_cache(maxsize=65_536)
def stage_layouts(config: KvConfig) -> tuple[KvLayout, ...]:
    """The layout of each pipeline stage."""
    return tuple(layout_of(config, stage) for stage in range(len(config.partition)))


def pool(
    shape: EngineShape, kv_bytes_per_rank: int | tuple[int, ...] | None = None, *, blocks: int | None = None
) -> KvPool:
    """The pool of a shape from bytes per card (one figure, or one per pipeline stage) or from a block count."""
    return pool_of(config_of(shape), kv_bytes_per_rank, blocks=blocks)


def pool_of(
    config: KvConfig, kv_bytes_per_rank: int | tuple[int, ...] | None = None, *, blocks: int | None = None
) -> KvPool:
    """The pool for a plain configuration; exactly one of bytes and blocks must be given."""
    if (kv_bytes_per_rank is None) == (blocks is None):
        raise MemoryModelError("give the KV pool either in bytes per card or in blocks")
    layouts = stage_layouts(config)
    if blocks is None:
        sizes = (kv_bytes_per_rank,) * len(layouts) if isinstance(kv_bytes_per_rank, int) else kv_bytes_per_rank
        if sizes is None or len(sizes) != len(layouts):
            raise MemoryModelError(f"give one KV pool size, or one for each of the {len(layouts)} stages")
        blocks = min(size // layout.block_bytes for size, layout in zip(sizes, layouts, strict=True))
    if blocks < 0:
        raise MemoryModelError("a KV pool cannot be negative")
    needed = layouts[0].blocks_per_request
    refusal = None
    if blocks < layouts[0].blocks_to_boot:
        worst = max(layouts, key=lambda layout: layout.block_bytes)
        spare = pool_rules(config.vllm).reserves_null_block
        refusal = (
            f"one request of {config.max_model_len:,} tokens needs {worst.gib_per_request:.2f} GiB of KV cache on a "
            f"card ({needed:,} blocks{' and one null block' if spare else ''}); the pool has "
            f"{blocks * worst.block_bytes / GIB:.2f} GiB ({blocks:,} blocks). "
            f"The longest context that fits is {longest_context(config, blocks):,} tokens"
        )
    return KvPool(
        num_blocks=blocks,
        block_size=layouts[0].block_size,
        # In floating point and truncated, as vLLM computes it: exact integers would differ by one now and then.
        pool_tokens=int(blocks / needed * config.max_model_len),
        concurrency=blocks / needed,
        bytes_per_stage=tuple(blocks * layout.block_bytes for layout in layouts),
        layouts=layouts,
        refusal=refusal,
    )


def longest_context(config: KvConfig, blocks: int) -> int:
    """The longest `max_model_len` that a pool of `blocks` blocks boots with; 0 when none does.

    The block size is the one that the configuration has at its own length.
    """
    layout = layout_of(config)
    reserved = layout.blocks_to_boot - layout.blocks_per_request
    attention = [group.blocks_per_request for group in layout.groups if group.kind is Kind.ATTENTION]
    others = layout.blocks_per_request - sum(attention)
    longest = max(0, (blocks - reserved - others) // len(attention)) * layout.block_size
    if longest >= config.max_model_len:
        return config.max_model_len
    if config.drafter is None:
        return longest
    blocks_at = blocks_by_length(config)
    if longest and blocks_at(longest) == _with_full_window(layout, longest):
        return longest
    # The drafter's window is not yet full at such a length: what it holds still depends on it.
    low, high = 0, config.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if blocks_at(middle) + reserved <= blocks:
            low = middle
        else:
            high = middle - 1
    return low


def _with_full_window(layout: KvLayout, length: int) -> int:
    """Blocks that a request of `length` tokens would hold if its window were as full as at the layout's own length."""
    blocks = -(-length // layout.block_size)
    return sum(blocks if group.kind is Kind.ATTENTION else group.blocks_per_request for group in layout.groups)

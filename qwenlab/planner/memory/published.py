"""Pools, refusals and lengths that others logged, as configurations of the memory model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from qwenlab.planner.memory.config import KvConfig
from qwenlab.planner.memory.layout import GIB, layout_of
from qwenlab.planner.memory.pool import KvPool, longest_context, pool_of

DRAFTER = "dflash2"


@dataclass(frozen=True)
class Published:
    """One logged figure.

    Attributes:
        config: what the engine ran with, as far as the source says.
        source: where it was published.
        pool: tokens of the pool; gib: GiB per card that were available (pools) or needed (refusals).
        kv_bytes, blocks: size of the pool where it was pinned; None where vLLM sized it.
        tokens: longest context that vLLM estimated.
        why: what is known about a figure that is not reproduced.
    """

    config: KvConfig
    source: str
    pool: int | None = None
    gib: float | None = None
    kv_bytes: int | None = None
    blocks: int | None = None
    tokens: int | None = None
    why: str | None = None

    @property
    def pinned(self) -> bool:
        """Whether the size of the pool was published."""
        return self.kv_bytes is not None or self.blocks is not None

    def ours(self) -> KvPool:
        """The pool that the model derives: of the pinned size, else of the block count nearest to the figure."""
        if self.pinned:
            return pool_of(self.config, self.kv_bytes, blocks=self.blocks)
        if self.pool is None:
            raise ValueError(f"{self.source}: neither a size nor a figure to derive one from")
        nearest = round(self.pool * layout_of(self.config).blocks_per_request / self.config.max_model_len)
        candidates = (pool_of(self.config, blocks=nearest + step) for step in (-1, 0, 1))
        wanted = self.pool
        return min(candidates, key=lambda pool: abs(pool.pool_tokens - wanted))

    def longest(self) -> int:
        """The longest context that the model derives for the pinned pool."""
        return longest_context(self.config, self.ours().num_blocks)

    def gib_per_request(self) -> float:
        """GiB on one card that the model says one full-length request needs."""
        return max(layout_of(self.config, stage).gib_per_request for stage in range(len(self.config.partition)))

    def gib_of_pool(self) -> float:
        """GiB on the fullest card that the derived pool takes."""
        return max(self.ours().bytes_per_stage) / GIB


def _row(entry: dict[str, Any]) -> Published:
    method = entry.get("spec")
    return Published(
        config=KvConfig(
            drafter=DRAFTER if method == "dflash" else None,
            method=method,
            draft_tokens=entry.get("k", 0),
            tp=entry.get("tp", 1),
            partition=tuple(entry.get("partition", (64,))),
            kv_dtype=entry["kv"],
            ssm_dtype=entry.get("ssm", "float16"),
            max_model_len=entry["max_model_len"],
            max_num_batched_tokens=entry.get("batched_tokens", 2048),
            prefix_cache=entry.get("prefix_cache", True),
            async_scheduling=entry.get("async", True),
            vllm=entry["vllm"],
            grouping_patched=entry.get("grouping", "patched") == "patched",
            promote_patched=entry.get("promoted"),
            block_size=entry.get("block_size"),
        ),
        source=entry["source"],
        **{name: entry.get(name) for name in ("pool", "gib", "kv_bytes", "blocks", "tokens", "why")},
    )


@cache
def published(section: str) -> tuple[Published, ...]:
    """The rows of one section: exact, misses, refusals or longest."""
    text = files("qwenlab.data").joinpath("published_pools.yaml").read_text(encoding="utf-8")
    return tuple(_row(entry) for entry in yaml.safe_load(text)[section])

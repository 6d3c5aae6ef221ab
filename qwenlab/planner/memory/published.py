"""Pools, refusals and lengths that others logged, as configurations of the memory model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from qwenlab.planner.memory.config import KvConfig, gdn_prefill_is_flashinfer
from qwenlab.planner.memory.layout import layout_of
from qwenlab.planner.memory.pool import KvPool, longest_context, pool_of
from qwenlab.planner.memory.reserve import graphs_gib, reserve_rules, workspace_gib
from qwenlab.planner.memory.versions import pool_rules
from qwenlab.planner.memory.weights import weights_per_stage
from qwenlab.planner.plan import Speculation
from qwenlab.planner.shape import Card, EngineShape

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
        inferred: what the source leaves open and was chosen so that the figure fits.
        why: what is known about a figure that is not reproduced.
    """

    config: KvConfig
    source: str
    pool: int | None = None
    gib: float | None = None
    kv_bytes: int | None = None
    blocks: int | None = None
    tokens: int | None = None
    inferred: str | None = None
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


def _row(entry: dict[str, Any]) -> Published:
    method = entry.get("spec")
    major, minor = str(entry.get("sm", 8.6)).split(".")
    capability = (int(major), int(minor))
    return Published(
        config=KvConfig(
            drafter=DRAFTER if method == "dflash" else None,
            method=method,
            draft_tokens=entry.get("k", 0),
            tp=entry.get("tp", 1),
            partition=tuple(entry.get("partition", (64,))),
            kv_dtype=entry["kv"],
            ssm_dtype=entry.get("ssm", "float16"),
            attention_backend=entry.get("backend"),
            gdn_flashinfer=(
                pool_rules(entry["vllm"]).checkpoint_state and gdn_prefill_is_flashinfer((capability,), None)
            ),
            capability=capability,
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
        **{name: entry.get(name) for name in ("pool", "gib", "kv_bytes", "blocks", "tokens", "inferred", "why")},
    )


@cache
def published(section: str) -> tuple[Published, ...]:
    """The rows of one section: exact, misses, refusals or longest."""
    text = files("qwenlab.data").joinpath("published_pools.yaml").read_text(encoding="utf-8")
    return tuple(_row(entry) for entry in yaml.safe_load(text)[section])


@dataclass(frozen=True)
class MemoryLine:
    """One published memory figure of a running engine beside ours, GiB on one card; `at_most` marks an upper bound."""

    source: str
    vllm: str
    published: float
    ours: float
    at_most: bool = False


@cache
def memory_lines(section: str) -> tuple[MemoryLine, ...]:
    """`loads` (weights on a card) or `rests` (what a card holds beside weights and KV pool)."""
    text = files("qwenlab.data").joinpath("published_memory.yaml").read_text(encoding="utf-8")
    return tuple(_line(entry) for entry in yaml.safe_load(text)[section])


def _line(entry: dict[str, Any]) -> MemoryLine:
    shape, stage = _shape(entry), entry.get("stage", 0)
    if "weights" in entry:
        return MemoryLine(entry["source"], shape.vllm, entry["weights"], weights_per_stage(shape)[stage])
    ours = workspace_gib(shape, stage) + (graphs_gib(shape, stage) if entry.get("graphs") else 0.0)
    if not entry.get("held_back", True):
        ours -= reserve_rules(shape.vllm).held_back
    return MemoryLine(entry["source"], shape.vllm, entry["rest"], ours, entry.get("at_most", False))


def _shape(entry: dict[str, Any]) -> EngineShape:
    partition = tuple(entry["partition"]) if "partition" in entry else None
    tp, pp = entry.get("tp", 1), len(partition) if partition else 1
    card = Card("published", 0, "published", tuple(entry["cc"]), 0.0, 0.0, 0.0, 0.0, None, None, 0.0)
    method = entry.get("spec")
    return EngineShape(
        checkpoint=entry.get("checkpoint", "int4-autoround"),
        cards=(card,) * (tp * pp),
        vllm=entry.get("vllm", "0.30.0"),
        drafter=entry.get("drafter", "dflash2-w4a16") if method == "dflash" else None,
        speculation=Speculation(method=method, tokens=entry["k"]) if method else None,
        tp=tp,
        pp=pp,
        partition=partition,
        max_num_seqs=entry.get("seats", 4),
        max_num_batched_tokens=entry.get("batched_tokens", 2048),
        vision=entry.get("vision", False),
        embedding_shared=not entry.get("stock", False),
    )

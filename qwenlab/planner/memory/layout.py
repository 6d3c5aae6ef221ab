"""How vLLM cuts the KV pool of a hybrid model into blocks, and how many of them one request holds.

Block sizes, page and groups are `structure`'s; what a request holds is derived from vLLM's v1/kv_cache_interface.py.
Checked against logged pools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from qwenlab.planner.memory.config import KvConfig, changed, config_of
from qwenlab.planner.memory.errors import MemoryModelError
from qwenlab.planner.memory.fitting import drafter_of
from qwenlab.planner.memory.structure import Kind, Structure, keeps_checkpoints, round_up, structure_of
from qwenlab.planner.memory.versions import pool_rules
from qwenlab.planner.shape import EngineShape

GIB = 1 << 30


@dataclass(frozen=True)
class KvGroup:
    """Layers that share one block table.

    Attributes:
        kind: what they keep.
        layers: how many there are in the whole model.
        block_size: tokens per block; a recurrent state covers any number of tokens.
        blocks_per_request: blocks that one request of the full length holds.
        short_blocks: blocks that a request holds which ends within its first block.
    """

    kind: Kind
    layers: int
    block_size: int
    blocks_per_request: int
    short_blocks: int

    def blocks_for(self, tokens: int) -> int:
        """Blocks that one request of `tokens` tokens holds while it decodes."""
        if tokens <= self.block_size:
            return self.short_blocks
        if self.kind is Kind.GDN:
            return self.blocks_per_request
        windowed = self.kind is Kind.SLIDING_WINDOW  # a window may start within a block
        return min(self.blocks_per_request, -(-tokens // self.block_size) + windowed)


@dataclass(frozen=True)
class KvLayout:
    """The KV pool's blocks as one stage of an engine sees them; bytes are per card.

    Attributes:
        block_size: tokens per block of the attention layers.
        own_block_size: what vLLM would choose without `--block-size`; pass the flag where the two differ.
        page_bytes: one block of one layer.
        group_size: layers per block in the whole model.
        slots: layers per block on this stage (all of `group_size` without pipeline parallelism).
        groups: block tables.
        blocks_per_request: that one request of the full length holds.
        blocks_to_boot: that vLLM wants before it starts (one more where a null block is reserved).
    """

    max_model_len: int
    block_size: int
    own_block_size: int
    page_bytes: int
    group_size: int
    slots: int
    groups: tuple[KvGroup, ...]
    blocks_per_request: int
    blocks_to_boot: int

    @property
    def block_bytes(self) -> int:
        """Bytes of one block on one card of this stage."""
        return self.page_bytes * self.slots

    @property
    def gib_per_request(self) -> float:
        """GiB on one card of this stage that one request of the full length holds, the figure vLLM refuses with."""
        return self.blocks_per_request * self.block_bytes / GIB

    @property
    def state_blocks_per_request(self) -> int:
        """Blocks that a request holds however short it is: recurrent states."""
        return sum(group.blocks_per_request for group in self.groups if group.kind is Kind.GDN)

    def blocks_for(self, tokens: int) -> int:
        """Blocks that one request of `tokens` tokens holds while it decodes (at most `blocks_per_request`)."""
        return sum(group.blocks_for(tokens) for group in self.groups)


def kv_layout(shape: EngineShape, stage: int = 0) -> KvLayout:
    """The layout of pipeline stage `stage` of an engine shape. MemoryModelError where vLLM could not run it."""
    return layout_of(config_of(shape), stage)


@lru_cache(maxsize=65_536)
def layout_of(config: KvConfig, stage: int = 0) -> KvLayout:
    """The layout of one stage for a plain configuration."""
    own = structure_of(_key(config))
    chosen = own
    if config.block_size is None and own.drafter_block < own.block_size:
        # A drafter block that divides the target's is scaled up to it: far fewer, fuller blocks per request.
        aligned = structure_of(_key(changed(config, block_size=round_up(own.block_size, own.drafter_block))))
        if _bytes_per_request(aligned, config) < _bytes_per_request(own, config):
            chosen = aligned
    if not 0 <= stage < len(chosen.slots):
        raise MemoryModelError(f"stage {stage} is not one of the {len(chosen.slots)} pipeline stages")
    groups = _groups(chosen, config)
    blocks = sum(group.blocks_per_request for group in groups)
    return KvLayout(
        max_model_len=config.max_model_len,
        block_size=chosen.block_size,
        own_block_size=own.block_size,
        page_bytes=chosen.page_bytes,
        group_size=chosen.group_size,
        slots=chosen.slots[stage],
        groups=groups,
        blocks_per_request=blocks,
        blocks_to_boot=blocks + pool_rules(config.vllm).reserves_null_block,
    )


def _key(config: KvConfig) -> KvConfig:
    return changed(config, max_model_len=0, max_num_batched_tokens=0, async_scheduling=True, in_flight_capped=True)


def _groups(structure: Structure, config: KvConfig) -> tuple[KvGroup, ...]:
    per_request = _held_by(structure, config)(config.max_model_len)
    blocks = {
        Kind.ATTENTION: structure.block_size,
        Kind.GDN: structure.block_size,
        Kind.SLIDING_WINDOW: structure.drafter_block,
    }
    # Within the first block no state has been checkpointed for the prefix cache yet.
    short = {Kind.ATTENTION: 1, Kind.GDN: 1 + config.draft_tokens, Kind.SLIDING_WINDOW: 1}
    groups: list[KvGroup] = []
    for kind, number, layers in structure.counts:
        least, over = divmod(layers, number)  # layers are dealt in turn: the first groups hold the remainder
        if over:
            groups += [KvGroup(kind, least + 1, blocks[kind], per_request[kind], short[kind])] * over
        groups += [KvGroup(kind, least, blocks[kind], per_request[kind], short[kind])] * (number - over)
    return tuple(groups)


def _held_by(structure: Structure, config: KvConfig) -> Callable[[int], dict[Kind, int]]:
    """Blocks that one request holds in a group of each kind, as a function of its length in tokens."""
    states = 1 + config.draft_tokens + config.prefix_cache + keeps_checkpoints(config, pool_rules(config.vllm))
    drafter = drafter_of(config)
    held = 0
    if drafter is not None:
        held = drafter.sliding_window - 1 + _batches_in_flight(config) * config.max_num_batched_tokens
    block, drafter_block = structure.block_size, structure.drafter_block

    def blocks(length: int) -> dict[Kind, int]:
        return {
            Kind.ATTENTION: -(-length // block),
            Kind.GDN: states,
            Kind.SLIDING_WINDOW: -(-min(held, length) // drafter_block) + 1 if held else 0,
        }

    return blocks


def blocks_by_length(config: KvConfig) -> Callable[[int], int]:
    """Blocks that one full-length request holds, as a function of `max_model_len`.

    The block size is the one of the configuration at its own length, so a search over lengths needs one layout only.
    """
    structure = structure_of(_key(changed(config, block_size=layout_of(config).block_size)))
    held = _held_by(structure, config)
    numbers = [(kind, number) for kind, number, _ in structure.counts]

    def blocks(length: int) -> int:
        by_kind = held(length)
        return sum(number * by_kind[kind] for kind, number in numbers)

    return blocks


def _batches_in_flight(config: KvConfig) -> int:
    """Batches whose tokens may be unsettled at once (vLLM config/vllm.py, max_concurrent_batches, V2 runner)."""
    stages = len(config.partition)
    if not config.async_scheduling or (stages > 1 and config.in_flight_capped):
        return stages
    return stages + 1


def _bytes_per_request(structure: Structure, config: KvConfig) -> int:
    held = _held_by(structure, config)(config.max_model_len)
    return sum(number * held[kind] for kind, number, _ in structure.counts) * structure.page_bytes

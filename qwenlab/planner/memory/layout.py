"""How vLLM cuts the KV pool of a hybrid model into blocks: block size, page, groups, blocks per request.

Derived from vLLM's platforms/interface.py (block size), v1/core/kv_cache_utils.py or, from 0.33, kv_cache_planning.py
(pages, groups, slots) and v1/kv_cache_interface.py (what one request holds); checked against logged pools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import gcd, lcm

from qwenlab.planner.geometry import DrafterGeometry, ModelGeometry, drafters, models
from qwenlab.planner.memory.config import KvConfig, changed, config_of
from qwenlab.planner.memory.errors import MemoryModelError, UnknownName
from qwenlab.planner.memory.kv_dtypes import KV_DTYPES, KvDtype, state_bytes
from qwenlab.planner.memory.versions import PoolRules, pool_rules
from qwenlab.planner.shape import EngineShape

GIB = 1 << 30
CONV_BYTES = 2  # the convolution's carry is kept in the model's 16-bit type
CHECKPOINT_ALIGNMENT = 64  # FlashInfer's GDN prefill exports states at multiples of 64 tokens
FA4_HEAD_256_PAGE = 128
MULTIPLE_OF = 16  # every backend but FlashInfer runs any multiple of 16 tokens
UNPACKED = {"int4_per_token_head": "int8_per_token_head"}
FLASHINFER_BLOCKS = (16, 32, 64)
FLASHINFER_BLOCKS_SM100 = (*FLASHINFER_BLOCKS, 128, 256, 512, 1024)


class Kind(StrEnum):
    """What the layers of a group keep."""

    ATTENTION = "attention"
    GDN = "gdn"
    SLIDING_WINDOW = "sliding window"


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


@dataclass(frozen=True)
class _Structure:
    """What does not depend on length and batch: block sizes, page, groups per kind, slots per stage."""

    block_size: int
    drafter_block: int
    page_bytes: int
    group_size: int
    counts: tuple[tuple[Kind, int, int], ...]  # kind, groups, layers
    slots: tuple[int, ...]


def kv_layout(shape: EngineShape, stage: int = 0) -> KvLayout:
    """The layout of pipeline stage `stage` of an engine shape. MemoryModelError where vLLM could not run it."""
    return layout_of(config_of(shape), stage)


@lru_cache(maxsize=65_536)
def layout_of(config: KvConfig, stage: int = 0) -> KvLayout:
    """The layout of one stage for a plain configuration."""
    own = _structure(_key(config))
    chosen = own
    if config.block_size is None and own.drafter_block < own.block_size:
        # A drafter block that divides the target's is scaled up to it: far fewer, fuller blocks per request.
        aligned = _structure(_key(changed(config, block_size=_round_up(own.block_size, own.drafter_block))))
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


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _key(config: KvConfig) -> KvConfig:
    return changed(config, max_model_len=0, max_num_batched_tokens=0, async_scheduling=True, in_flight_capped=True)


@lru_cache(maxsize=16_384)
def _structure(config: KvConfig) -> _Structure:
    model = _model(config)
    drafter = _drafter(config)
    rules = pool_rules(config.vllm)
    dtype = KV_DTYPES[config.kv_dtype]
    token = dtype.token_bytes(max(1, model.attention.kv_heads // config.tp), model.attention.head_dim)
    state = _state_page(model, config)
    alignment = max(_granularity(dtype, config, rules), config.block_size or 0)
    if _keeps_checkpoints(config, rules):
        alignment = lcm(alignment, CHECKPOINT_ALIGNMENT)
    block = alignment * -(-state // (alignment * token))
    page = block * token
    drafter_block = block
    if drafter is not None:
        stored = dtype if rules.packs_window else KV_DTYPES.get(UNPACKED.get(dtype.name, ""), dtype)
        drafter_token = stored.token_bytes(max(1, drafter.kv_heads // config.tp), drafter.head_dim)
        drafter_block = _drafter_block(dtype, config, rules, block)
        if _promoted(config, rules) and dtype.drafter_block is None and page % (drafter_block * drafter_token):
            drafter_block = _promote(drafter_block, drafter_token, block, page)
        drafter_page = drafter_block * drafter_token
        largest = max(page, drafter_page)
        # Pages of one pool are equal: whole multiples grow in tokens, others are padded.
        if largest % page == 0:
            block *= largest // page
        if largest % drafter_page == 0 and dtype.drafter_block is None:
            drafter_block *= largest // drafter_page
        page = largest
    counts = {Kind.ATTENTION: model.attention_layers, Kind.GDN: model.gdn_layers}
    if config.method == "mtp":
        counts[Kind.ATTENTION] += model.mtp_layers
    if drafter is not None:
        counts[Kind.SLIDING_WINDOW] = drafter.layers
    size = group_size(tuple(counts.values()), drafter is not None, config.grouping_patched)
    groups = tuple((kind, -(-layers // size), layers) for kind, layers in counts.items())
    return _Structure(
        block_size=block,
        drafter_block=drafter_block,
        page_bytes=page,
        group_size=size,
        counts=groups,
        slots=_slots(
            model,
            config.partition,
            model.mtp_layers if config.method == "mtp" else 0,
            drafter.layers if drafter is not None else 0,
            tuple((kind, number) for kind, number, _ in groups),
        ),
    )


def group_size(layers: tuple[int, ...], last_is_window: bool, patched: bool) -> int:
    """Layers per block. Stock: the smallest bucket, or the largest when it is less than half as large again.

    Patched: a window bucket that is the smallest no longer sets the size. The largest common divisor of the other
    buckets does, as long as the window bucket's padding stays within its own size and the groups do not become many
    and small (48 GDN, 16 attention and 5 window layers: 8 in place of 5; ExTV/dual-gpus-vllm patch 11, HyperQwen
    hybrid-kv-groups).
    """
    smallest = min(layers)
    if max(layers) < smallest * 1.5:
        return max(layers)
    window, others = layers[-1], layers[:-1]
    if patched and last_is_window and window < min(others):
        common = gcd(*others)
        padded = [size for size in range(common, 0, -1) if common % size == 0 and -window % size <= window]
        if padded and 2 * padded[0] > window:
            return padded[0]
    return smallest


def _model(config: KvConfig) -> ModelGeometry:
    known = models()
    if config.model not in known:
        raise UnknownName("model", config.model, list(known))
    model = known[config.model]
    heads, gdn = model.attention, model.gdn
    kv_splits = config.tp > 0 and (heads.kv_heads % config.tp == 0 or config.tp % heads.kv_heads == 0)
    if not kv_splits or any(n % config.tp for n in (heads.query_heads, gdn.key_heads, gdn.value_heads)):
        fitting = [n for n in range(1, 17) if tensor_parallel_fits(model, n)]
        raise MemoryModelError(
            f"tensor parallel {config.tp} does not divide the heads of {config.model}; possible: {fitting}"
        )
    if sum(config.partition) != model.layers or min(config.partition) < 1:
        raise MemoryModelError(
            f"partition {','.join(map(str, config.partition))} does not share out {model.layers} layers, "
            "at least one to each stage"
        )
    return model


def tensor_parallel_fits(model: ModelGeometry, tp: int) -> bool:
    """Whether `tp` ranks can share the heads: KV heads divide or are replicated, all others divide."""
    heads, gdn = model.attention, model.gdn
    shared = heads.kv_heads % tp == 0 or tp % heads.kv_heads == 0
    return shared and not any(n % tp for n in (heads.query_heads, gdn.key_heads, gdn.value_heads))


def _drafter(config: KvConfig) -> DrafterGeometry | None:
    if config.drafter is None:
        return None
    known = drafters()
    if config.drafter not in known:
        raise UnknownName("drafter", config.drafter, list(known))
    return known[config.drafter]


def _state_page(model: ModelGeometry, config: KvConfig) -> int:
    """Bytes of one recurrent state of one layer on one card: the state and the convolution's carry."""
    gdn = model.gdn
    carry = gdn.conv_channels * (gdn.conv_kernel - 1 + config.draft_tokens) * CONV_BYTES
    return (gdn.state_elements * state_bytes(config.ssm_dtype) + carry) // config.tp


def _keeps_checkpoints(config: KvConfig, rules: PoolRules) -> bool:
    return rules.checkpoint_state and config.gdn_flashinfer and config.prefix_cache


def _granularity(dtype: KvDtype, config: KvConfig, rules: PoolRules) -> int:
    backend = config.attention_backend or dtype.backend
    if backend == "FLASH_ATTN" and config.capability[0] == 10 and rules.large_head_pages:
        return FA4_HEAD_256_PAGE
    return dtype.granularity


def _drafter_block(dtype: KvDtype, config: KvConfig, rules: PoolRules, block: int) -> int:
    """The block that the drafter's layers start from, before pages are made equal."""
    if dtype.drafter_block is not None:
        return dtype.drafter_block
    if not rules.drafter_takes_target_block:
        return MULTIPLE_OF
    backend = config.drafter_backend or config.attention_backend or dtype.backend
    if backend != "FLASHINFER":
        return block // MULTIPLE_OF * MULTIPLE_OF
    sizes = FLASHINFER_BLOCKS_SM100 if config.capability[0] == 10 else FLASHINFER_BLOCKS
    return max(size for size in sizes if size <= block)


def _promoted(config: KvConfig, rules: PoolRules) -> bool:
    promoted = config.grouping_patched if config.promote_patched is None else config.promote_patched
    return promoted and not rules.drafter_takes_target_block


def _promote(granularity: int, token: int, block: int, page: int) -> int:
    """A longer drafter block whose page covers the target's: a divisor of the target's block, or none."""
    covering = _round_up(-(-page // token), granularity)
    for size in range(covering, block + 1, granularity):
        if block % size == 0:
            return size
    return granularity


@lru_cache(maxsize=4096)
def _slots(
    model: ModelGeometry,
    partition: tuple[int, ...],
    mtp_layers: int,
    drafter_layers: int,
    groups: tuple[tuple[Kind, int], ...],
) -> tuple[int, ...]:
    """Layers per block on each stage: layers are dealt to their groups in turn, the fullest group counts."""
    numbers = dict(groups)
    dealt: dict[Kind, int] = dict.fromkeys(numbers, 0)
    slots = []
    layer = 0
    for stage, layers in enumerate(partition):
        held = {kind: [0] * number for kind, number in groups}
        kinds = [Kind.ATTENTION if model.is_full_attention(i) else Kind.GDN for i in range(layer, layer + layers)]
        if stage == len(partition) - 1:
            kinds += [Kind.ATTENTION] * mtp_layers + [Kind.SLIDING_WINDOW] * drafter_layers
        for kind in kinds:
            held[kind][dealt[kind] % numbers[kind]] += 1
            dealt[kind] += 1
        layer += layers
        slots.append(max(max(counts) for counts in held.values()))
    return tuple(slots)


def _groups(structure: _Structure, config: KvConfig) -> tuple[KvGroup, ...]:
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


def _held_by(structure: _Structure, config: KvConfig) -> Callable[[int], dict[Kind, int]]:
    """Blocks that one request holds in a group of each kind, as a function of its length in tokens."""
    states = 1 + config.draft_tokens + config.prefix_cache + _keeps_checkpoints(config, pool_rules(config.vllm))
    drafter = _drafter(config)
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
    structure = _structure(_key(changed(config, block_size=layout_of(config).block_size)))
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


def _bytes_per_request(structure: _Structure, config: KvConfig) -> int:
    held = _held_by(structure, config)(config.max_model_len)
    return sum(number * held[kind] for kind, number, _ in structure.counts) * structure.page_bytes

"""What of the KV pool's layout depends on neither length nor batch: block sizes, page, groups, slots per stage.

Derived from vLLM's platforms/interface.py (block size) and v1/core/kv_cache_utils.py or, from 0.33,
kv_cache_planning.py (pages, groups, slots).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import gcd, lcm

from qwenlab.planner.geometry import DrafterGeometry, ModelGeometry
from qwenlab.planner.memory.config import KvConfig
from qwenlab.planner.memory.fitting import drafter_of, model_of
from qwenlab.planner.memory.kv_dtypes import KV_DTYPES, KvDtype, state_bytes
from qwenlab.planner.memory.versions import PoolRules, pool_rules

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
class Structure:
    """Block sizes in tokens, page in bytes of one card.

    Attributes:
        block_size: of the target's layers.
        drafter_block: of the drafter's; the target's where there is none.
        page_bytes: one block of one layer, whosever it is.
        group_size: layers per block in the whole model.
        counts: kind, groups and layers of each kind.
        slots: layers per block, by stage.
    """

    block_size: int
    drafter_block: int
    page_bytes: int
    group_size: int
    counts: tuple[tuple[Kind, int, int], ...]
    slots: tuple[int, ...]


def round_up(value: int, multiple: int) -> int:
    """The next multiple that is not below `value`."""
    return -(-value // multiple) * multiple


@lru_cache(maxsize=16_384)
def structure_of(config: KvConfig) -> Structure:
    """The structure of a configuration. MemoryModelError where vLLM could not run it."""
    model = model_of(config)
    drafter = drafter_of(config)
    block, drafter_block, page = _blocks(model, drafter, config)
    mtp_layers = model.mtp_layers if config.method == "mtp" else 0
    drafter_layers = drafter.layers if drafter is not None else 0
    counts = {Kind.ATTENTION: model.attention_layers + mtp_layers, Kind.GDN: model.gdn_layers}
    if drafter is not None:
        counts[Kind.SLIDING_WINDOW] = drafter_layers
    size = group_size(tuple(counts.values()), drafter is not None, config.grouping_patched)
    numbers = tuple((kind, -(-layers // size)) for kind, layers in counts.items())
    return Structure(
        block_size=block,
        drafter_block=drafter_block,
        page_bytes=page,
        group_size=size,
        counts=tuple((kind, number, counts[kind]) for kind, number in numbers),
        slots=_slots(model, config.partition, mtp_layers, drafter_layers, numbers),
    )


def _blocks(model: ModelGeometry, drafter: DrafterGeometry | None, config: KvConfig) -> tuple[int, int, int]:
    """Tokens per block of the target and of the drafter, and bytes of their common page."""
    rules = pool_rules(config.vllm)
    dtype = KV_DTYPES[config.kv_dtype]
    token = dtype.token_bytes(max(1, model.attention.kv_heads // config.tp), model.attention.head_dim)
    alignment = max(_granularity(dtype, config, rules), config.block_size or 0)
    if keeps_checkpoints(config, rules):
        alignment = lcm(alignment, CHECKPOINT_ALIGNMENT)
    block = alignment * -(-_state_page(model, config) // (alignment * token))
    page = block * token
    if drafter is None:
        return block, block, page
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
    return block, drafter_block, largest


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


def _state_page(model: ModelGeometry, config: KvConfig) -> int:
    """Bytes of one recurrent state of one layer on one card: the state and the convolution's carry."""
    gdn = model.gdn
    carry = gdn.conv_channels * (gdn.conv_kernel - 1 + config.draft_tokens) * CONV_BYTES
    return (gdn.state_elements * state_bytes(config.ssm_dtype) + carry) // config.tp


def keeps_checkpoints(config: KvConfig, rules: PoolRules) -> bool:
    """Whether recurrent states are checkpointed for the prefix cache, one more to each request."""
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
    covering = round_up(-(-page // token), granularity)
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

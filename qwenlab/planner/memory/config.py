"""The configuration that decides how a KV pool is cut into blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from qwenlab.planner.capabilities import ComputeCapability
from qwenlab.planner.catalogue import checkpoints, drafter_checkpoints
from qwenlab.planner.geometry import drafters
from qwenlab.planner.memory.errors import MemoryModelError
from qwenlab.planner.memory.kv_dtypes import kv_dtype
from qwenlab.planner.memory.versions import DEFAULT_VERSION, pool_rules
from qwenlab.planner.shape import EngineShape


@dataclass(frozen=True)
class KvConfig:
    """Everything that block size, groups and blocks per request depend on; hashable, the key of all caches.

    Attributes:
        model, drafter: keys of the geometry tables; drafter is None unless speculation is dflash.
        method, draft_tokens: speculation; None and 0 without.
        partition: layers per pipeline stage; one entry without pipeline parallelism.
        drafter_backend: attention backend of the drafter's layers; None lets the KV data type decide.
        gdn_flashinfer: GDN prefill runs FlashInfer's kernels (compute capability 9.0, 10.x, 12.x).
        capability: lowest compute capability of the cards; only 10.x has rules of its own.
        block_size: tokens, as passed to `--block-size`; None lets `kv_layout` choose.
        promote_patched: before 0.30: the drafter's block is enlarged to the target's; None follows grouping_patched.
        in_flight_capped: at most one batch per pipeline stage is in flight with a drafter (stock: one more).
    """

    model: str = "qwen3.8-27b"
    drafter: str | None = None
    method: str | None = None
    draft_tokens: int = 0
    tp: int = 1
    partition: tuple[int, ...] = (64,)
    kv_dtype: str = "fp8"
    ssm_dtype: str = "float16"
    attention_backend: str | None = None
    drafter_backend: str | None = None
    gdn_flashinfer: bool = False
    capability: ComputeCapability = (8, 6)
    max_model_len: int = 262_144
    max_num_batched_tokens: int = 2048
    prefix_cache: bool = True
    async_scheduling: bool = True
    vllm: str = DEFAULT_VERSION
    grouping_patched: bool = True
    promote_patched: bool | None = None
    in_flight_capped: bool = True
    block_size: int | None = None


def changed(config: KvConfig, **fields: object) -> KvConfig:
    """`dataclasses.replace` without its field loop: planning asks for thousands of variants."""
    copy = object.__new__(KvConfig)
    copy.__dict__.update(config.__dict__)
    copy.__dict__.update(fields)
    return copy


def gdn_prefill_is_flashinfer(capabilities: tuple[ComputeCapability, ...], requested: str | None) -> bool:
    """Whether vLLM's `auto` picks FlashInfer for GDN prefill on every card (CUDA 13 runtime).

    Source: vLLM 0.33.0 model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py, _resolve_gdn_prefill_backend.
    """
    if requested not in (None, "auto", "flashinfer"):
        return False
    return bool(capabilities) and all(c == (9, 0) or c[0] in (10, 12) for c in capabilities)


def gdn_prefill_backend(shape: EngineShape) -> str | None:
    """The `--gdn-prefill-backend` that a shape has to pass; None where vLLM's own choice is the same on every card.

    Each worker chooses by its own card. From 0.33 on the choice changes the recurrent state's blocks, so cards that
    choose differently would cut the pool differently: tensor-parallel ranks then stop with "The KV cache specs for the
    same layer are different across workers", pipeline stages fall into many small groups.
    """
    if shape.gdn_prefill_backend is not None:
        return shape.gdn_prefill_backend
    choices = {gdn_prefill_is_flashinfer((card.compute_capability,), None) for card in shape.cards}
    return "triton" if len(choices) > 1 and pool_rules(shape.vllm).checkpoint_state else None


def layers_per_stage(shape: EngineShape, layers: int) -> tuple[int, ...]:
    """The shape's partition, or vLLM's even split (the last stages but one take the remainder)."""
    if shape.partition is not None:
        return shape.partition
    return even_partition(layers, shape.pp)


def even_partition(layers: int, stages: int) -> tuple[int, ...]:
    """vLLM's default split: equal, the remainder going to the stages before the last (distributed/utils.py)."""
    base, remainder = divmod(layers, stages)
    sizes = [base] * stages
    for i in range(2, remainder + 2):
        sizes[-i] += 1
    return tuple(sizes)


def _default_drafter(model: str) -> str:
    fitting = [key for key, drafter in drafters().items() if model in drafter.for_models]
    if not fitting:
        raise MemoryModelError(f"no block drafter is known for {model}; use MTP or no speculation")
    return fitting[0]


@lru_cache(maxsize=65_536)
def config_of(shape: EngineShape) -> KvConfig:
    """The part of an engine shape that the KV pool depends on."""
    spec = checkpoints()[shape.checkpoint]
    speculation = shape.speculation
    capabilities = tuple(card.compute_capability for card in shape.cards)
    drafter = None
    if speculation is not None and speculation.method == "dflash":
        drafter = (
            drafter_checkpoints()[shape.drafter].drafter if shape.drafter is not None else _default_drafter(spec.model)
        )
    return KvConfig(
        model=spec.model,
        drafter=drafter,
        method=speculation.method if speculation else None,
        draft_tokens=speculation.tokens if speculation else 0,
        tp=shape.tp,
        partition=layers_per_stage(shape, spec.geometry.layers),
        kv_dtype=kv_dtype(shape.kv_dtype).name,
        ssm_dtype=shape.ssm_dtype,
        attention_backend=shape.attention_backend,
        drafter_backend=shape.drafter_attention_backend,
        gdn_flashinfer=(
            pool_rules(shape.vllm).checkpoint_state
            and gdn_prefill_is_flashinfer(capabilities, gdn_prefill_backend(shape))
        ),
        capability=min(capabilities, default=(8, 6)),
        max_model_len=shape.max_model_len,
        max_num_batched_tokens=shape.max_num_batched_tokens,
        prefix_cache=shape.prefix_cache,
        async_scheduling=shape.async_scheduling,
        vllm=shape.vllm,
        grouping_patched=shape.grouping_patched,
        in_flight_capped=shape.in_flight_capped,
        block_size=shape.block_size,
    )

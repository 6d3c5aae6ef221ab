"""The named model and drafter of a configuration, and whether its ranks and stages can share them."""

from __future__ import annotations

from qwenlab.planner.geometry import DrafterGeometry, ModelGeometry, drafters, models
from qwenlab.planner.memory.config import KvConfig
from qwenlab.planner.memory.errors import MemoryModelError, UnknownName


def tensor_parallel_fits(model: ModelGeometry, tp: int) -> bool:
    """Whether `tp` ranks (at least one) can share the heads: KV heads divide or are replicated, all others divide."""
    heads, gdn = model.attention, model.gdn
    shared = heads.kv_heads % tp == 0 or tp % heads.kv_heads == 0
    return shared and not any(n % tp for n in (heads.query_heads, gdn.key_heads, gdn.value_heads))


def model_of(config: KvConfig) -> ModelGeometry:
    """The model. MemoryModelError where it is unknown, or tensor parallelism or the partition does not suit it."""
    known = models()
    if config.model not in known:
        raise UnknownName("model", config.model, list(known))
    model = known[config.model]
    if config.tp < 1 or not tensor_parallel_fits(model, config.tp):
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


def drafter_of(config: KvConfig) -> DrafterGeometry | None:
    """The drafter, if there is one. MemoryModelError where it is unknown."""
    if config.drafter is None:
        return None
    known = drafters()
    if config.drafter not in known:
        raise UnknownName("drafter", config.drafter, list(known))
    return known[config.drafter]

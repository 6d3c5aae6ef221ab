"""The memory model: KV blocks and pools exactly as vLLM plans them, weights per rank, and whether a shape fits."""

from qwenlab.planner.memory.budget import Budget, RankBudget, budget
from qwenlab.planner.memory.config import KvConfig, config_of, gdn_prefill_backend
from qwenlab.planner.memory.errors import MemoryModelError
from qwenlab.planner.memory.fitting import tensor_parallel_fits
from qwenlab.planner.memory.largest import Largest, largest
from qwenlab.planner.memory.layout import GIB, KvGroup, KvLayout, kv_layout, layout_of
from qwenlab.planner.memory.pool import KvPool, pool, pool_of
from qwenlab.planner.memory.structure import Kind
from qwenlab.planner.memory.weights import weights_per_rank

__all__ = [
    "GIB",
    "Budget",
    "Kind",
    "KvConfig",
    "KvGroup",
    "KvLayout",
    "KvPool",
    "Largest",
    "MemoryModelError",
    "RankBudget",
    "budget",
    "config_of",
    "gdn_prefill_backend",
    "kv_layout",
    "largest",
    "layout_of",
    "pool",
    "pool_of",
    "tensor_parallel_fits",
    "weights_per_rank",
]

"""KV cache data types: bytes of one token in one layer, and the token granularity their kernels want."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from qwenlab.planner.memory.errors import UnknownName


@dataclass(frozen=True)
class KvDtype:
    """How one KV element type is stored.

    Attributes:
        name: vLLM's `--kv-cache-dtype` word.
        key_bits, value_bits: per element.
        head_overhead: bytes per head and token beside the elements (scales of keys and values together).
        scale_group: elements that share one byte of block scale; 0 without block scales.
        granularity: tokens that an attention block must be a multiple of.
        backend: attention backend that serves it everywhere (compute capability 8.6 included).
        drafter_block: block of a block drafter's layers where it is fixed; None where the drafter's kernels say.
    """

    name: str
    key_bits: int
    value_bits: int
    backend: str
    head_overhead: int = 0
    scale_group: int = 0
    granularity: int = 16
    drafter_block: int | None = None

    def token_bytes(self, heads: int, head_dim: int) -> int:
        """Bytes of one token in one layer: keys and values of `heads` heads of `head_dim` elements."""
        elements = head_dim * (self.key_bits + self.value_bits) // 8
        scales = 2 * head_dim // self.scale_group if self.scale_group else 0
        return heads * (elements + self.head_overhead + scales)


# Sources: vLLM 0.33.0 v1/attention/backends/triton_attn.py and flashinfer.py (customize_spec): per-token-head types
# keep one fp32 scale for K and one for V, nvfp4 one fp8 scale per 16 elements. kvarn: HyperQwen kvarn/README.md
# (840 B per token with 4 heads of 256; blocks of 128).
_TABLE = (
    KvDtype("bfloat16", 16, 16, "FLASH_ATTN"),
    KvDtype("float16", 16, 16, "FLASH_ATTN"),
    KvDtype("fp8", 8, 8, "FLASHINFER"),
    KvDtype("fp8_e4m3", 8, 8, "FLASHINFER"),
    KvDtype("fp8_e5m2", 8, 8, "FLASHINFER"),
    KvDtype("int8_per_token_head", 8, 8, "TRITON_ATTN", head_overhead=8),
    KvDtype("fp8_per_token_head", 8, 8, "TRITON_ATTN", head_overhead=8),
    KvDtype("int4_per_token_head", 4, 4, "TRITON_ATTN", head_overhead=8),
    KvDtype("nvfp4", 4, 4, "FLASHINFER", scale_group=16),
    KvDtype("kvarn_k4v2_g128", 4, 2, "KVARN", head_overhead=18, granularity=128, drafter_block=128),
)
_ALIASES = {
    "auto": "bfloat16",
    "bf16": "bfloat16",
    "fp16": "float16",
    "int8": "int8_per_token_head",
    "int4": "int4_per_token_head",
    "int4pth": "int4_per_token_head",
    "int8pth": "int8_per_token_head",
    "kvarn": "kvarn_k4v2_g128",
}
KV_DTYPES = MappingProxyType({dtype.name: dtype for dtype in _TABLE})
STATE_BYTES = MappingProxyType({"float16": 2, "bfloat16": 2, "float32": 4})


def kv_dtype(word: str) -> KvDtype:
    """The data type that `word` (vLLM's or a common short form) means; UnknownName when there is none."""
    name = _ALIASES.get(word, word)
    if name not in KV_DTYPES:
        raise UnknownName("KV cache data type", word, [*KV_DTYPES, *_ALIASES])
    return KV_DTYPES[name]


def state_bytes(word: str) -> int:
    """Bytes per element of the recurrent state; `auto` and unknown words are refused with UnknownName."""
    if word not in STATE_BYTES:
        raise UnknownName("recurrent-state data type", word, list(STATE_BYTES))
    return STATE_BYTES[word]

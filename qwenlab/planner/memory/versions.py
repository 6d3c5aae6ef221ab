"""What differs between vLLM versions in the planning of the KV pool, as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

from packaging.version import InvalidVersion, Version

from qwenlab.planner.memory.errors import MemoryModelError


@dataclass(frozen=True)
class PoolRules:
    """Rules of one span of versions.

    Attributes:
        since: first version that they hold for.
        reserves_null_block: the pool must hold one block more than a full-length request needs.
        drafter_takes_target_block: sliding-window layers start from the largest block that their kernels run and that
            is no longer than the target's block; before, from the smallest.
        packs_window: sliding-window layers store int4 packed; before, in the bytes of int8.
        checkpoint_state: FlashInfer's GDN prefill keeps one more recurrent state per request with prefix caching and
            wants blocks that are multiples of 64 tokens.
        large_head_pages: FlashAttention 4 on compute capability 10.x takes 128-token pages for heads of 256.
    """

    since: str
    reserves_null_block: bool
    drafter_takes_target_block: bool
    packs_window: bool
    checkpoint_state: bool
    large_head_pages: bool


# vLLM v1/core/kv_cache_utils.py (0.33: kv_cache_planning.py), model_executor/layers/attention/attention.py,
# model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py, v1/attention/backends/flash_attn.py of each version.
_OLDEST = PoolRules(
    since="0.25",
    reserves_null_block=False,
    drafter_takes_target_block=False,
    packs_window=False,
    checkpoint_state=False,
    large_head_pages=False,
)
_CHANGES: tuple[tuple[str, dict[str, bool], str], ...] = (
    ("0.28", {"packs_window": True}, "a drafter's int4 KV is stored packed; before, in the bytes of int8"),
    (
        "0.29",
        {"reserves_null_block": True, "large_head_pages": True},
        "one block more than a request needs must be there (null block); 128-token pages on compute capability 10.x",
    ),
    (
        "0.30",
        {"drafter_takes_target_block": True},
        "a drafter's block starts from the target's where its kernels allow (64 tokens on FlashInfer); before, from 16",
    ),
    (
        "0.33",
        {"checkpoint_state": True},
        "FlashInfer's GDN prefill with prefix caching: one state more per request, blocks in multiples of 64",
    ),
)
_TABLE = tuple(
    accumulate(_CHANGES, lambda rules, change: replace(rules, since=change[0], **change[1]), initial=_OLDEST)
)
DEFAULT_VERSION = "0.33.0"


@cache
def pool_rules(version: str) -> PoolRules:
    """The rules of a vLLM version; versions before the first known one are refused, newer ones use the latest."""
    try:
        wanted = Version(version)
    except InvalidVersion as error:
        raise MemoryModelError(f"{version!r} is not a vLLM version; write for example {DEFAULT_VERSION}") from error
    known = [rules for rules in _TABLE if Version(rules.since) <= wanted]
    if not known:
        raise MemoryModelError(f"the block rules of vLLM {version} are not known; {_TABLE[0].since} is the oldest")
    return known[-1]


def history() -> list[tuple[str, str]]:
    """What changed from which release on, for the documentation."""
    return [(_OLDEST.since, "the oldest rules that logged pools confirm")] + [
        (since, text) for since, _, text in _CHANGES
    ]

"""The CPU tier for KV blocks."""

from __future__ import annotations

import hashlib
from typing import Any

from probes.registry import Surroundings, probe

CHUNKS = 8  # of the tier


class Tier:
    """A tier of `CHUNKS` chunks, used as the scheduler does: look up the prefix, store the rest batch by batch."""

    def __init__(self) -> None:
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

        self.manager: Any = CPUOffloadingManager(CHUNKS)
        self.requests = 0

    def turn(self, conversation: str, length: int, batch: int) -> int:
        """One request of `length` chunks, stored `batch` at a time. Returns the chunks that the tier served."""
        from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key

        self.requests += 1
        context = ReqContext(req_id=str(self.requests))
        names = (f"{conversation}{index}".encode() for index in range(length))
        keys = [make_offload_key(hashlib.sha256(name).digest(), 0) for name in names]
        for index, key in enumerate(keys):
            context.set_offload_key_position(key, (index + 1) * 16)
        self.manager.on_new_request(context)
        served = 0
        while served < length and self.manager.lookup(keys[served], context) is LookupResult.HIT:
            served += 1
        if served:
            self.manager.prepare_load(keys[:served], context)
            self.manager.complete_load(keys[:served], context)
        for start in range(served, length, batch):
            part = keys[start : start + batch]
            if self.manager.prepare_store(part, context) is not None:
                self.manager.complete_store(part, context)
        self.manager.on_request_finished(context)
        return served


@probe("offload-lru-tail-first")
def a_conversation_loses_its_tail_first(s: Surroundings) -> None:
    for batch in (1, 2, 4):
        tier = Tier()
        assert tier.turn("short", 4, batch) == 0
        assert tier.turn("long", 12, batch) == 0
        served = tier.turn("long", 12, batch)
        assert served >= CHUNKS - batch, f"in batches of {batch} the tier serves nothing: {served} of {CHUNKS} chunks"
    tier = Tier()
    assert tier.turn("a", 3, 1) == tier.turn("b", 3, 1) == 0
    assert tier.turn("a", 3, 1) == tier.turn("b", 3, 1) == 3, "what fits is kept"
    tier.turn("c", 4, 1)
    assert tier.turn("b", 3, 1) == 3, "the conversation used longest ago goes first"

"""What was measured on a host: how much an engine takes beside its KV pool, and with what that holds.

Written on the host by plays/calibrate.py, read into `HostInventory`, used by the planner as long as nothing that it was
measured with has changed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from qwenlab.record import Record


class MeasuredWith(Record):
    """Everything that the memory of an engine depends on; another value of any of it needs another measurement."""

    vllm: str
    driver: str | None = Field(description="loaded kernel module; None on the cpu engine")
    checkpoint: str
    drafter: str | None = None
    cards: tuple[str, ...] = Field(description="UUIDs in rank order")
    layout: str
    patches: tuple[str, ...] = ()
    args: dict[str, Any] = Field(description="vLLM's arguments but for the pool, the length and the address")
    env: dict[str, str]

    def differences(self, now: MeasuredWith) -> tuple[str, ...]:
        """What is otherwise now, in words: `driver 580.95.05 -> 595.71.05`."""
        found = []
        for name in type(self).model_fields:
            before, after = getattr(self, name), getattr(now, name)
            if before == after:
                continue
            if isinstance(before, dict):
                changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
                found += [f"{key} {_word(before.get(key))} -> {_word(after.get(key))}" for key in changed]
            else:
                found.append(f"{name} {_word(before)} -> {_word(after)}")
        return tuple(found)


class Measurement(Record):
    """One engine of a host, as its unpinned start came out.

    Attributes:
        engine: its name; at: when, in UTC.
        inputs: what it was measured with.
        beside_gib: per rank, what the engine takes of its card beside the KV pool; empty on the cpu engine.
        kv_available_gib: vLLM's own "Available KV cache memory" lines (rank 0 prints it).
        kv_tokens: vLLM's "GPU KV cache size" of that start.
        transports: NCCL's words for the channels between ranks; all_reduce: vLLM's kernels in order.
        cold: the caches were still cold at the last start that was tried; then the figures are on the small side.
    """

    engine: str
    at: str
    inputs: MeasuredWith
    beside_gib: tuple[float, ...] = ()
    kv_available_gib: tuple[float, ...] = ()
    kv_tokens: int | None = None
    transports: tuple[str, ...] = ()
    all_reduce: tuple[str, ...] = ()
    multicast: bool = False
    cold: bool = False


class Calibration(Record):
    """The record on the host, /etc/qwen/calibration.json."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    engines: tuple[Measurement, ...] = ()


def _word(value: Any) -> str:
    return "none" if value in (None, (), {}) else ", ".join(value) if isinstance(value, tuple) else str(value)

"""What vLLM's own start-up lines say: memory, KV pool, kernels, transports, seconds. Pure: text in, value out.

Read from vLLM 0.32.0 and 0.33.0 (`v1/worker/gpu_worker.py`, `v1/core/kv_cache_utils.py`, `v1/engine/core.py`,
`distributed/device_communicators/cuda_communicator.py`) and from NCCL's INFO lines. A line that a version does not
print leaves its field None; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class EngineLog:
    """Figures of one start. Memory in GiB, times in seconds; lists hold one entry per rank that printed the line."""

    vllm: str | None = None
    weights_gib: tuple[float, ...] = ()
    kv_available_gib: tuple[float, ...] = ()
    kv_tokens: int | None = None
    max_concurrency: float | None = None
    max_concurrency_at: int | None = None
    graphs_gib: tuple[float, ...] = ()
    attention_backend: tuple[str, ...] = ()
    gdn_kernels: tuple[str, ...] = ()
    all_reduce: tuple[str, ...] = ()
    transports: tuple[str, ...] = field(default=(), metadata={"of": "NCCL channels: P2P/CUMEM, SHM, NET ..."})
    multicast: bool = False
    compile_s: tuple[float, ...] = ()
    init_s: float | None = None
    padding_layers: int | None = None
    fallbacks: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _integer(text: str) -> int:
    return int(text.replace(",", ""))


@dataclass(frozen=True)
class _Line:
    """One kind of line: its first group, read by `read`, goes to `name`; `many` collects, otherwise the last wins."""

    name: str
    pattern: re.Pattern[str]
    read: Callable[[str], Any]
    many: bool = False


_LINES = (
    _Line("vllm", re.compile(r"\bvLLM (?:API server )?(?:version|engine \(v)\s*([0-9][^\s)]*)"), str),
    _Line("weights_gib", re.compile(r"Model loading took ([\d.]+) GiB"), _number, many=True),
    _Line("kv_available_gib", re.compile(r"Available KV cache memory: (-?[\d.]+) GiB"), _number, many=True),
    _Line("kv_tokens", re.compile(r"KV cache size: ([\d,]+) tokens"), _integer),
    _Line("max_concurrency", re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"), _number),
    _Line("max_concurrency_at", re.compile(r"Maximum concurrency for ([\d,]+) tokens per request"), _integer),
    _Line(
        "graphs_gib", re.compile(r"Graph capturing finished in [\d.]+ secs, took (-?[\d.]+) GiB"), _number, many=True
    ),
    _Line(
        "attention_backend",
        re.compile(r"Using (?:AttentionBackendEnum\.)?([A-Z0-9_]+) attention backend"),
        str,
        True,
    ),
    _Line("gdn_kernels", re.compile(r"(GDN spec decode kernel: \w+|Using \S+ GDN prefill kernel)"), str, many=True),
    _Line("all_reduce", re.compile(r"Using \[([^\]]*)\] all-reduce backends"), str, many=True),
    _Line("transports", re.compile(r"NCCL INFO Channel \S+ : .* via (\S+)"), str, many=True),
    _Line("compile_s", re.compile(r"torch\.compile took ([\d.]+) s in total"), _number, many=True),
    _Line("init_s", re.compile(r"init engine \(.*\) took ([\d.]+) s"), _number),
    _Line("padding_layers", re.compile(r"Add (\d+) padding layers"), _integer),
    _Line("fallbacks", re.compile(r"(Falling back to .*|falling back to .*)"), str, many=True),
    _Line(
        "errors",
        re.compile(r"\b((?:ValueError|RuntimeError|AssertionError|torch\.\w*OutOfMemoryError): .*)"),
        str,
        True,
    ),
)
_MULTICAST = re.compile(r"mnnvl|NVLS multicast support is available", re.IGNORECASE)


def parse(text: str) -> EngineLog:
    """Read the lines of one start (the journal or the captured output, any number of ranks interleaved)."""
    found: dict[str, Any] = {}
    multicast = False
    for line in text.splitlines():
        multicast = multicast or bool(_MULTICAST.search(line))
        for kind in _LINES:
            match = kind.pattern.search(line)
            if match is None:
                continue
            value = kind.read(match.group(1))
            if not kind.many:
                found[kind.name] = value
            elif isinstance(value, float) or value not in found.get(kind.name, ()):
                found[kind.name] = (*found.get(kind.name, ()), value)
    return EngineLog(**found, multicast=multicast)

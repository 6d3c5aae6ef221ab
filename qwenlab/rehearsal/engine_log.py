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
class RankUse:
    """What one rank says about its card after an unpinned start, in GiB.

    vLLM 0.33.0 v1/worker/gpu_worker.py compile_or_warm_up_model ("Actual usage is ..."); 0.32.0 prints the same.

    Attributes:
        rank: place in the data-parallel, pipeline and tensor-parallel group.
        free, total: of the card when the engine started.
        consumed: weights and everything outside the allocator, pool excluded.
        peak: activations of the largest step; with `graphs_counted` the estimate of the graphs too.
        graphs, graphs_estimate: captured CUDA graphs, and what profiling expected of them.
    """

    rank: tuple[int, int, int]
    free: float
    total: float
    consumed: float
    peak: float
    graphs: float
    graphs_estimate: float = 0.0
    graphs_counted: bool = False

    @property
    def beside_gib(self) -> float:
        """What the engine takes of the card beside its KV pool; graphs count with the larger of two figures."""
        counted = self.graphs_estimate if self.graphs_counted else 0.0
        return round(self.consumed + self.peak + max(0.0, self.graphs - counted), 3)


@dataclass(frozen=True)
class EngineLog:
    """Figures of one start. Memory in GiB, times in seconds; lists hold one entry per rank that printed the line.

    `use` is in rank order. `cold`: something was compiled and written to the cache, so activations were measured with
    the compiler's own memory beside them.
    """

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
    use: tuple[RankUse, ...] = ()
    cold: bool = False

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
_COLD = re.compile(r"Cache the graph of compile range|saved AOT compiled function")
_RANK = re.compile(r"\((?:Worker|EngineCore)((?:_[A-Z]+\d+)*) pid=")
_USE = re.compile(
    r"Free memory on device \((?P<free>-?[\d.]+)/(?P<total>[\d.]+) GiB\) on startup\..*"
    r"Actual usage is (?P<consumed>-?[\d.]+) GiB for consumed memory.*?, (?P<peak>-?[\d.]+) GiB for peak activation, "
    r"and (?P<graphs>-?[\d.]+) GiB for CUDAGraph memory"
)
_GRAPHS = re.compile(r"CUDA graph pool memory: -?[\d.]+ GiB \(actual\), (-?[\d.]+) GiB \(estimated\)")
_COUNTED = "CUDA graph memory profiling is enabled"
_MULTICAST = re.compile(r"mnnvl|NVLS multicast support is available", re.IGNORECASE)


def parse(text: str) -> EngineLog:
    """Read the lines of one start (the journal or the captured output, any number of ranks interleaved)."""
    found: dict[str, Any] = {}
    lines = text.splitlines()
    for line in lines:
        for kind in _LINES:
            match = kind.pattern.search(line)
            if match is None:
                continue
            value = kind.read(match.group(1))
            if not kind.many:
                found[kind.name] = value
            elif isinstance(value, float) or value not in found.get(kind.name, ()):
                found[kind.name] = (*found.get(kind.name, ()), value)
    return EngineLog(
        **found,
        multicast=any(_MULTICAST.search(line) for line in lines),
        cold=any(_COLD.search(line) for line in lines),
        use=_use(lines),
    )


def _use(lines: list[str]) -> tuple[RankUse, ...]:
    """One entry a rank, in rank order."""
    estimates: dict[tuple[int, int, int], float] = {}
    found: dict[tuple[int, int, int], RankUse] = {}
    counted = any(_COUNTED in line for line in lines)
    for line in lines:
        rank = _rank(line)
        if match := _GRAPHS.search(line):
            estimates[rank] = float(match.group(1))
        if match := _USE.search(line):
            figures = {name: float(figure) for name, figure in match.groupdict().items()}
            found[rank] = RankUse(rank, **figures, graphs_estimate=estimates.get(rank, 0.0), graphs_counted=counted)
    return tuple(found[rank] for rank in sorted(found))


def _rank(line: str) -> tuple[int, int, int]:
    """Data-parallel, pipeline and tensor-parallel rank in a line's prefix; what it does not name is 0."""
    match = _RANK.search(line)
    named = dict(re.findall(r"_(DP|PP|TP)(\d+)", match.group(1))) if match else {}
    return int(named.get("DP", 0)), int(named.get("PP", 0)), int(named.get("TP", 0))

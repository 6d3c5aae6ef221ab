"""The plan: what one host will run, and why. Serialises to the JSON that `qwenlab plan --json` prints."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import ConfigDict, Field

from qwenlab.record import Record

SCHEMA_VERSION = 1


class Workload(StrEnum):
    """What the cards are asked to be good at."""

    CHAT = "chat"  # one to four people, latency
    BATCH = "batch"  # eight and more concurrent requests
    LONG = "long"  # 150,000 tokens of context and more
    EDIT = "edit"  # answers quote the prompt


class Evidence(StrEnum):
    """How a rule is known to hold."""

    MEASURED = "measured"
    FIELD_REPORT = "field report"
    DERIVED = "derived"


class Checkpoint(Record):
    """A checkpoint on the hub, pinned to a commit; named by a branch until the host that serves it has resolved it."""

    repo: str
    revision: str = Field(description="full commit hash, or a branch's name")
    format: str = Field(description="catalogue format: int4-autoround, w8a16, fp8, nvfp4, bf16, ...")
    preparation: str | None = Field(default=None, description="recipe by which the host requantises it; none: as it is")

    @property
    def place(self) -> str:
        """Where what is served lies below the model directory."""
        return f"{self.repo}/{self.revision}" + (f".{self.preparation}" if self.preparation else "")

    def directory(self, models: str) -> str:
        """Where what is served lies on a host whose model directory is `models`."""
        return f"{models}/{self.place}"


class Speculation(Record):
    """Speculative decoding: vLLM's method name and draft tokens per step."""

    method: Literal["mtp", "dflash"]
    tokens: int


class RankMemory(Record):
    """Memory budget of one rank's card in GiB; the parts add up to at most `total`."""

    gpu: str
    weights: float
    kv: float
    workspace: float
    graphs: float
    in_use: float
    margin: float
    total: float


class KvPool(Record):
    """The KV pool of one engine replica."""

    blocks: int
    block_size: int
    tokens: int


class Predicted(Record):
    """What the throughput model expects; the error of the model is in docs/accuracy.md."""

    decode_tok_s: float = Field(description="one stream, tokens per second")
    aggregate_tok_s: float | None = Field(default=None, description="at the planned concurrency, tokens per second")
    concurrency: int | None = None
    prefill_tok_s: float | None = None


class Measured(Record):
    """The measurement that an engine's pool comes from (plays/calibrate.py)."""

    at: str
    vllm: str
    driver: str | None = None
    beside_gib: tuple[float, ...] = Field(default=(), description="per rank, taken beside the KV pool")
    kv_tokens: int | None = Field(default=None, description="pool of the start that was measured, sized by vLLM")
    transports: tuple[str, ...] = ()
    all_reduce: tuple[str, ...] = ()


class Reason(Record):
    """Why a flag, a variable or a layout is what it is."""

    rule: str
    text: str
    source: str
    evidence: Evidence
    sets: tuple[str, ...] = Field(default=(), description="arguments, `option.key` of JSON options, variables, patches")


class Rejected(Record):
    """A candidate that lost, with the number that lost."""

    layout: str
    why: str


class NodeProcess(Record):
    """One vLLM process group of an engine: an unequal pair runs as two nodes on one host, one card each."""

    node_rank: int
    gpus: tuple[str, ...]
    args: dict[str, Any] = Field(default_factory=dict, description="differs from the engine's args")
    env: dict[str, str] = Field(default_factory=dict, description="differs from the engine's env")


class EnginePlan(Record):
    """One engine: one port, one unit `qwen-engine@<name>.service` per process."""

    name: str
    port: int
    gpus: tuple[str, ...] = Field(description="UUIDs in rank order; empty on the cpu engine")
    tp: int = 1
    pp: int = 1
    dp: int = 1
    partition: tuple[int, ...] | None = Field(default=None, description="layers per pipeline rank")
    processes: tuple[NodeProcess, ...] = Field(default=(), description="empty: one process with all cards")
    checkpoint: Checkpoint
    drafter: Checkpoint | None = None
    speculation: Speculation | None = None
    kv_cache_dtype: str
    attention_backend: str | None
    max_model_len: int
    max_num_seqs: int
    args: dict[str, Any] = Field(description="what goes into the YAML of `vllm serve --config`")
    env: dict[str, str]
    patches: tuple[str, ...] = ()
    memory: tuple[RankMemory, ...] = ()
    kv: KvPool | None = None
    predicted: Predicted | None = None
    measured: Measured | None = None
    reasons: tuple[Reason, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = Field(default=(), description="what the owner should know about this engine")


class IdleCard(Record):
    """A card that no engine uses."""

    gpu: str
    why: str


class Refusal(Record):
    """Why the host cannot be served, machine-readable, with words for its owner."""

    code: str
    text: str


class HostPlan(Record):
    """All engines of one host."""

    schema_version: Literal[1] = Field(default=1, alias="schema", serialization_alias="schema")
    status: Literal["planned", "refused"]
    workload: Workload
    vllm: str = Field(description="version that the plan was made for")
    engines: tuple[EnginePlan, ...] = ()
    idle: tuple[IdleCard, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

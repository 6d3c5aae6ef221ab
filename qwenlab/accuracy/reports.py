"""Field reports as model input: every measured point beside what the throughput model predicts for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from qwenlab.gpu_data import find
from qwenlab.planner.throughput import Link, Silicon, WeightTraffic, Work, prefill_tok_s, step_ms, tokens_per_step
from qwenlab.planner.throughput.acceptance import TRAINED_BLOCK
from qwenlab.planner.throughput.calibration import Constants, data

KV_BYTES = {  # per token and attention layer, keys and values of four heads of 256
    "bfloat16": 4096,
    "float16": 4096,
    "fp8": 2048,
    "fp8_e5m2": 2048,
    "int8_per_token_head": 2080,
    "int4_per_token_head": 1056,
    "kvarn_k4v2_g128": 840,
    "turboquant_3bit_nc": 900,
    "nvfp4": 1152,
}
STATE_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
SHORT = 2000  # tokens in the cache where a report does not say


@dataclass(frozen=True)
class Point:
    """One measured figure.

    Attributes:
        corpus: what was generated; "step" (ms per verify step), "prefill" or "aggregate" are no single-stream rates.
        value: tok/s, or ms for corpus "step".
    """

    report: str
    machine: str
    corpus: str
    value: float
    depth: int
    streams: int
    work: Work
    draft: tuple[str, int] | None
    configuration: str

    def predicted(self, constants: Constants | None = None) -> float:
        """The model's figure for the same quantity."""
        if self.corpus == "prefill":
            return prefill_tok_s(self.work, constants)
        step = step_ms(self.work, constants)
        if self.corpus == "step":
            return step
        text = "batch" if self.corpus == "aggregate" else self.corpus
        method, tokens = self.draft or (None, 0)
        return self.streams * tokens_per_step(text, method, tokens) * 1e3 / step

    @property
    def single_stream(self) -> bool:
        """Whether this is a decode rate of one stream, what the accuracy is judged on."""
        return self.streams == 1 and self.corpus not in ("step", "prefill", "aggregate")


@cache
def rows() -> tuple[Mapping[str, Any], ...]:
    """All reports as they lie in data/field_reports.yaml."""
    loaded: list[dict[str, Any]] = yaml.safe_load(
        files("qwenlab.data").joinpath("field_reports.yaml").read_text("utf-8")
    )
    return tuple(loaded)


@cache
def points() -> tuple[Point, ...]:
    """Every measured figure of the reports that are not excluded."""
    return tuple(point for row in rows() if "excluded" not in row for point in _points(row))


def silicon(name: str) -> Silicon:
    """Data-sheet figures of a card by name.

    Raises:
        LookupError: not in the device table, or its data sheet gives no tensor rate.
    """
    spec = find(name=name)
    if spec is None or spec.fp16_tflops is None or spec.compute_capability is None:
        raise LookupError(f"no data-sheet figures for {name!r}")
    return Silicon(spec.bandwidth_gb_s, spec.fp16_tflops, spec.fp8_tflops, spec.compute_capability)


def _points(row: Mapping[str, Any]) -> list[Point]:
    link = Link(row["link"])
    if row.get("wsl2") and link is Link.HOST:
        link = Link.HOST_WSL2
    draft: tuple[str, int] | None = tuple(row["speculation"]) if row["speculation"] else None
    replicas = row.get("dp", 1)
    cards = tuple(silicon(name) for name in row["cards"])[: len(row["cards"]) // replicas]
    base = Work(
        cards=cards,
        weights=WeightTraffic(**data()["weights"][row["weights"]]),
        kv_bytes=KV_BYTES[row["kv_dtype"]],
        backend=row["backend"],
        layers=tuple(row.get("partition", (64,))),
        tp=row.get("tp", 1),
        link=link,
        draft=draft[0].removesuffix("1") if draft else None,
        draft_tokens=min(draft[1], TRAINED_BLOCK.get(draft[0], draft[1])) if draft else 0,
        drafter_gb=data()["drafter_gb"].get(draft[0], 0.0) if draft else 0.0,
        state_bytes=STATE_BYTES[row.get("ssm_dtype", "float16")],
    )
    found = []
    for measured in row["measured"]:
        depth, streams = measured.get("depth", SHORT), measured.get("streams", 1)
        work = replace(
            base, depth=depth // 2 if measured["corpus"] == "prefill" else depth, streams=-(-streams // replicas)
        )
        found.append(
            Point(
                report=row["id"],
                machine=row["machine"],
                corpus=measured["corpus"],
                value=measured.get("tok_s", measured.get("ms")),
                depth=depth,
                streams=streams,
                work=work,
                draft=draft,
                configuration=_configuration(row, base),
            )
        )
    return found


def _configuration(row: Mapping[str, Any], work: Work) -> str:
    method, tokens = row["speculation"] or ("no drafter", "")
    layout = f"TP={work.tp}" if work.tp > 1 else "one card"
    if len(work.layers) > 1:
        layout = f"PP={len(work.layers)} {','.join(map(str, work.layers))}"
    return f"{row['weights']}, {layout}, {method} {tokens}".rstrip() + f", {row['kv_dtype']} on {row['backend']}"

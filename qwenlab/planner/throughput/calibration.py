"""The constants of the throughput model, read from `data/throughput.yaml`, and what each one means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True)
class Constants:
    """Physical constants, the same for every machine; fitted by `python -m qwenlab accuracy --fit`.

    Attributes:
        read_efficiency: share of the data-sheet bandwidth that weight reads reach.
        compute_efficiency: share of the data-sheet tensor rate that batched GEMMs reach, by kernel.
        layer_us: small kernels of one decoder layer on one card.
        step_ms: sampling, scheduling and sending of one step.
        mtp_ms: fixed cost of one MTP draft token; dflash_ms: of one DFlash block.
        reduce_us: one all-reduce between two ranks, by link; every doubling of the ranks costs it once more, but for
            NVSwitch, where every rank reads all others at once.
        reduce_gb_s: rate at which a longer message crosses the link.
        stage_ms: handing a step from one pipeline stage to the next.
        stage_overlap: how well stages that work on different batches overlap; 1 is perfectly.
        host_ms: shortest step where speculation runs with piecewise graphs, because the host then launches attention
            and recurrence layer by layer: with `one` rank or `several`, and for each further drafting `pass`.
        piecewise: attention backends whose speculative steps run with piecewise graphs.
        attention_read: share of the bandwidth that reads of a long KV cache reach, by backend, for one query token
            (`decode`) and for a speculative block (`verify`).
        prefill_efficiency: share of the tensor rate that a prompt reaches, by kernel.
        hopper: what was measured of compute capability 9.0's GEMMs (bench/gpu/rows.py): `read_8` and `read_8-block`,
            share of `read_efficiency` with 8-bit weights; `read_packed_4` and `read_packed_8`, with integers that
            Machete and Marlin unpack; of block scales, up to `few_rows` a small tile serves and up
            to `tile_rows` one wide tile at `tile_efficiency` of the tensor rate; `prefill_16`, a prompt on 16-bit
            weights; `verify_state`, share of `read_efficiency` of the recurrence over several tokens.
    """

    read_efficiency: float
    compute_efficiency: Mapping[str, float]
    layer_us: float
    step_ms: float
    mtp_ms: float
    dflash_ms: float
    reduce_us: Mapping[str, float]
    reduce_gb_s: Mapping[str, float]
    stage_ms: float
    stage_overlap: float
    host_ms: Mapping[str, float]
    piecewise: tuple[str, ...]
    attention_read: Mapping[str, Mapping[str, float]]
    prefill_efficiency: Mapping[str, float]
    hopper: Mapping[str, float]


@cache
def data() -> Mapping[str, Any]:
    """The whole of `data/throughput.yaml`."""
    loaded: dict[str, Any] = yaml.safe_load(files("qwenlab.data").joinpath("throughput.yaml").read_text("utf-8"))
    return loaded


@cache
def constants() -> Constants:
    """The fitted constants."""
    raw = data()["constants"]
    return Constants(**{**raw, "piecewise": tuple(raw["piecewise"])})

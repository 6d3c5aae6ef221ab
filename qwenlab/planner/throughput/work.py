"""What one engine has to move and compute in a step: the input of the throughput model.

It is an own type and not an `EngineShape`, so that reports on checkpoints outside the catalogue can be predicted too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from qwenlab.planner.capabilities import ComputeCapability

GB = 1e9
LAYERS = 64  # decoder layers of the model


class Link(StrEnum):
    """How the ranks of an all-reduce reach each other, best first; the slowest pair decides for all."""

    NVSWITCH = "nvswitch"  # or as many NVLinks as a data-centre pair has
    NVLINK = "nvlink"
    PEER = "peer"  # PCIe peer access
    HOST = "host"  # through host memory
    HOST_WSL2 = "host-wsl2"  # the same under WSL2


@dataclass(frozen=True)
class Silicon:
    """What the model needs to know of a card: GB/s (1e9) and dense TFLOP/s."""

    bandwidth_gb_s: float
    fp16_tflops: float
    fp8_tflops: float | None = None
    compute_capability: ComputeCapability = (8, 6)
    pcie_gb_s: float = 16.0


@dataclass(frozen=True)
class WeightTraffic:
    """Bytes (1e9) that a step reads of each part of a checkpoint.

    Attributes:
        body: the decoder layers, all of them; spread evenly over the layers.
        head: lm_head.
        mtp: the MTP layer; read once for every draft token.
        draft_head: head that an MTP draft token goes through: a cut vocabulary's, else `head`.
        kernel: "16" weight-only or 16-bit GEMMs, "8" GEMMs on 8-bit inputs, "8-block" those with a scale per block.
        packed_bits: of integer weights that the kernel unpacks; 0 for all others.
    """

    body: float
    head: float
    mtp: float
    draft_head: float
    kernel: str = "16"
    packed_bits: int = 0


@dataclass(frozen=True)
class Work:
    """One engine replica at one operating point.

    Attributes:
        cards: in rank order, stage by stage (tp cards each).
        layers: decoder layers per stage.
        draft: None, "mtp", "dflash" (drafter of `drafter_gb`).
        backend: attention backend word; `kv_bytes`: bytes per token per attention layer, all KV heads.
        state_bytes: bytes of one element of the recurrent state.
        depth: tokens in the cache of each stream; streams: requests decoding at once.
    """

    cards: tuple[Silicon, ...]
    weights: WeightTraffic
    kv_bytes: float
    backend: str
    layers: tuple[int, ...] = (LAYERS,)
    tp: int = 1
    link: Link = Link.HOST
    draft: str | None = None
    draft_tokens: int = 0
    drafter_gb: float = 0.0
    state_bytes: int = 2
    depth: int = 2000
    streams: int = 1

    def over(self, layers: tuple[int, ...]) -> Work:
        """The same work with another layer split (`dataclasses.replace` takes four times as long)."""
        return Work(
            self.cards,
            self.weights,
            self.kv_bytes,
            self.backend,
            layers,
            self.tp,
            self.link,
            self.draft,
            self.draft_tokens,
            self.drafter_gb,
            self.state_bytes,
            self.depth,
            self.streams,
        )

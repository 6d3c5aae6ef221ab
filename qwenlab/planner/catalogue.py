"""The checkpoint catalogue: which weights exist, how large each tensor group is, what they need.

Everything is data (qwenlab/data/checkpoints.yaml); another checkpoint or model is another entry there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml

from qwenlab.planner.geometry import DrafterGeometry, ModelGeometry, drafters, models

if TYPE_CHECKING:
    from collections.abc import Mapping

GIB = 1 << 30
DEFAULT_MODEL = "qwen3.8-27b"  # what a host serves unless its settings name another checkpoint


@dataclass(frozen=True)
class WeightBits:
    """Bits per weight of each tensor group, scales included."""

    mlp: float
    attention: float
    gdn: float
    embedding: float
    lm_head: float
    mtp: float


@dataclass(frozen=True)
class CheckpointSpec:
    """One checkpoint of a target model.

    Attributes:
        key: name in the catalogue and in settings.
        model: key of the geometry.
        repo, revision: on the hub; a revision of None is resolved when deployed and pinned in the plan.
        format: int4-autoround, w8a16, fp8, fp8-channel, nvfp4, bf16.
        published_gib: size of the files that the source states.
        min_compute_capability: oldest cards that vLLM serves it on.
        kernels: family of linear kernels; weight_only ones agree across ranks of different compute capability.
        drafters: drafters trained for these weights' model.
        mtp: it has an MTP head that vLLM loads.
        patches: ids of the patch series that it cannot do without.
        preparation: recipe of qwenlab/preparation that makes it from the repository's files on the host.
        online: how vLLM quantises its linear layers while it loads them (a word of `--quantization`); None: as stored.
        kld, agreement: mean KL divergence from BF16 and share of equal first choices, where one panel measured it.
    """

    key: str
    model: str
    repo: str
    revision: str | None
    format: str
    bits: WeightBits
    published_gib: float
    min_compute_capability: tuple[int, int]
    kernels: str
    weight_only: bool
    gated: bool
    mtp: bool
    drafters: tuple[str, ...]
    patches: tuple[str, ...]
    kld: float | None
    agreement: float | None
    quality: str
    source: str
    preparation: str | None = None
    online: str | None = None

    def named(self, word: str) -> bool:
        """Whether a setting's word means this checkpoint: a repository means its files as they are stored."""
        return word in (self.key, self.format) or (word == self.repo and self.online is None)

    @cached_property
    def geometry(self) -> ModelGeometry:
        """The layers behind the weights."""
        return models()[self.model]

    @cached_property
    def gib(self) -> Mapping[str, float]:
        """GiB of each tensor group of the whole model; `attention_layer` and `gdn_layer` are one layer each."""
        count = self.geometry.parameters()
        bits = self.bits
        small = count["gdn_small"] * 16
        mlp = count["mlp"] * bits.mlp
        sizes = {
            "attention_layer": count["attention"] * bits.attention + mlp,
            "gdn_layer": count["gdn"] * bits.gdn + small + mlp,
            "embedding": count["embedding"] * bits.embedding,
            "lm_head": count["lm_head"] * bits.lm_head,
            "mtp": count["mtp"] * bits.mtp if self.mtp else 0.0,
        }
        return MappingProxyType(
            {name: size / 8 / GIB for name, size in sizes.items()} | {"vision": self.geometry.vision_gib}
        )

    @cached_property
    def total_gib(self) -> float:
        """GiB of all tensors, the vision tower and MTP included."""
        gib = self.gib
        layers = self.geometry.attention_layers * gib["attention_layer"] + self.geometry.gdn_layers * gib["gdn_layer"]
        return layers + sum(gib[name] for name in ("embedding", "lm_head", "mtp", "vision"))


@dataclass(frozen=True)
class DrafterSpec:
    """One checkpoint of a block drafter; `drafter` is the key of its geometry."""

    key: str
    drafter: str
    repo: str
    revision: str | None
    format: str
    gib: float
    gated: bool
    source: str

    @property
    def geometry(self) -> DrafterGeometry:
        """The drafter's layers."""
        return drafters()[self.drafter]


@cache
def _data() -> dict[str, dict[str, dict[str, Any]]]:
    text = files("qwenlab.data").joinpath("checkpoints.yaml").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text)
    return loaded


@cache
def checkpoints() -> Mapping[str, CheckpointSpec]:
    """All checkpoints by key, in the catalogue's order of preference."""
    return MappingProxyType({key: _checkpoint(key, entry) for key, entry in _data()["checkpoints"].items()})


def _checkpoint(key: str, entry: dict[str, Any]) -> CheckpointSpec:
    major, minor = entry["min_compute_capability"]
    return CheckpointSpec(
        key=key,
        **{
            **entry,
            "bits": WeightBits(**entry["bits"]),
            "min_compute_capability": (major, minor),
            "drafters": tuple(entry["drafters"]),
            "patches": tuple(entry["patches"]),
        },
    )


@cache
def drafter_checkpoints() -> Mapping[str, DrafterSpec]:
    """All drafter checkpoints by key."""
    return MappingProxyType({key: DrafterSpec(key=key, **entry) for key, entry in _data()["drafters"].items()})

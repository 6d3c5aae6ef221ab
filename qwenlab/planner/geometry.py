"""Model geometry: what the layers of a model are, as data, and how many parameters each tensor group has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping


LEAST_STAGE_LAYERS = 4  # a stage without a full-attention layer makes the workers disagree on the cache layout


@dataclass(frozen=True)
class AttentionGeometry:
    """Full attention with grouped queries; `output_gate` doubles the query projection."""

    query_heads: int
    kv_heads: int
    head_dim: int
    output_gate: bool


@dataclass(frozen=True)
class GdnGeometry:
    """Gated DeltaNet: a recurrent state of value_heads x value_dim x key_dim and a short convolution's carry."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    state_dtype: str

    @property
    def conv_channels(self) -> int:
        """Channels that the convolution runs over: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_elements(self) -> int:
        """Elements of one recurrent state of one layer."""
        return self.value_heads * self.value_dim * self.key_dim


@dataclass(frozen=True)
class ModelGeometry:
    """One target model."""

    key: str
    repo: str
    architecture: str
    layers: int
    full_attention_interval: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    max_model_len: int
    attention: AttentionGeometry
    gdn: GdnGeometry
    mtp_layers: int
    vision_gib: float
    source: str

    def is_full_attention(self, layer: int) -> bool:
        """Whether layer `layer` (from 0) keeps a KV cache; the others keep a recurrent state."""
        return layer % self.full_attention_interval == self.full_attention_interval - 1

    @property
    def attention_layers(self) -> int:
        """Number of full-attention layers."""
        return self.layers // self.full_attention_interval

    @property
    def gdn_layers(self) -> int:
        """Number of Gated DeltaNet layers."""
        return self.layers - self.attention_layers

    def parameters(self) -> Mapping[str, int]:
        """Parameters of each tensor group: per layer for `mlp`, `attention`, `gdn`, `gdn_small`; whole for the rest.

        `gdn_small` (the two gate projections and the convolution) stays in 16 bit in every known checkpoint.
        """
        attention, gdn, hidden = self.attention, self.gdn, self.hidden_size
        query = attention.query_heads * attention.head_dim
        key_value = 2 * attention.kv_heads * attention.head_dim
        values = gdn.value_heads * gdn.value_dim
        attention_parameters = hidden * (query * (2 if attention.output_gate else 1) + key_value) + query * hidden
        mlp = 3 * hidden * self.intermediate_size
        return {
            "mlp": mlp,
            "attention": attention_parameters,
            "gdn": hidden * (gdn.conv_channels + values) + values * hidden,
            "gdn_small": 2 * hidden * gdn.value_heads + gdn.conv_channels * gdn.conv_kernel,
            "embedding": self.vocab_size * hidden,
            "lm_head": self.vocab_size * hidden,
            "mtp": self.mtp_layers * (attention_parameters + mlp) + 2 * hidden * hidden,
        }


@dataclass(frozen=True)
class DrafterGeometry:
    """A block drafter with sliding-window attention layers."""

    key: str
    method: str
    for_models: tuple[str, ...]
    layers: int
    hidden_size: int
    kv_heads: int
    head_dim: int
    sliding_window: int
    trained_tokens: int
    target_layers: tuple[int, ...]
    source: str


@cache
def _data() -> dict[str, dict[str, dict[str, Any]]]:
    text = files("qwenlab.data").joinpath("models.yaml").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text)
    return loaded


@cache
def models() -> Mapping[str, ModelGeometry]:
    """All known models by key."""
    return MappingProxyType(
        {
            key: ModelGeometry(
                key=key,
                **{
                    **entry,
                    "attention": AttentionGeometry(**entry["attention"]),
                    "gdn": GdnGeometry(**entry["gdn"]),
                },
            )
            for key, entry in _data()["models"].items()
        }
    )


@cache
def drafters() -> Mapping[str, DrafterGeometry]:
    """All known block drafters by key."""
    return MappingProxyType(
        {
            key: DrafterGeometry(
                key=key,
                **{
                    **entry,
                    "for_models": tuple(entry["for_models"]),
                    "target_layers": tuple(entry["target_layers"]),
                },
            )
            for key, entry in _data()["drafters"].items()
        }
    )

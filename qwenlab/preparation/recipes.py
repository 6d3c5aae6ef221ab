"""Which tensors are requantised, to what, and how the checkpoint's config says so.

The parts and their measured errors: syv-ai/HyperQwen prepare/quant_lm_head.py (0.64 %), quant_embed.py (0.56 %; needs
an engine that reads quantized embeddings), quant_mtp.py.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

GROUP = 128
LINEARS = "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"


@dataclass(frozen=True)
class Part:
    """A kind of tensor.

    Attributes:
        tensors: pattern of the names in the files.
        target: what config.json calls the modules, also where the engine fuses or renames them.
        probes: module names by which an `ignore` entry is recognised that would keep the part out.
    """

    name: str
    tensors: re.Pattern[str]
    target: str
    probes: tuple[str, ...]


PARTS = {
    part.name: part
    for part in (
        Part("lm_head", re.compile(r"(.*\.)?lm_head\.weight"), r"re:(.*\.)?lm_head$", ("lm_head",)),
        Part(
            "embedding",
            re.compile(r"model\.(language_model\.)?embed_tokens\.weight"),
            r"re:(.*\.)?embed_tokens$",
            ("model.language_model.embed_tokens", "model.embed_tokens", "embed_tokens"),
        ),
        Part(
            "mtp",
            re.compile(rf"mtp\.(fc|layers\.\d+\.(self_attn|mlp)\.({LINEARS}))\.weight"),
            r"re:(.*\.)?mtp\..*",
            ("mtp.fc", "mtp.layers.0.self_attn.q_proj", "mtp.layers.0.mlp.gate_proj"),
        ),
    )
}
RECIPES: dict[str, dict[str, int]] = {
    # recipe -> part to bits
    "int8-heads": {"lm_head": 8, "embedding": 8, "mtp": 8},
    "int4-heads": {"lm_head": 4, "embedding": 8, "mtp": 4},
    "int8-head": {"lm_head": 8},
    "int4-head": {"lm_head": 4},
}


def part_of(tensor: str, recipe: str) -> Part | None:
    """The part of a recipe that a tensor belongs to."""
    return next((PARTS[name] for name in RECIPES[recipe] if PARTS[name].tensors.fullmatch(tensor)), None)


def excludes(entry: str, part: Part) -> bool:
    """Whether an entry of `ignore` would keep a part's modules unquantized."""
    if entry.startswith("re:"):
        return any(re.match(entry[3:], probe) for probe in part.probes)
    return entry in part.probes or any(probe.startswith(f"{entry}.") for probe in part.probes)


def mended_config(config: dict[str, Any], bits: dict[str, int], kept: list[str]) -> dict[str, Any]:
    """config.json of the prepared checkpoint.

    Args:
        config: of the source, which is not changed.
        bits: of each part that was requantised.
        kept: modules that an `ignore` entry kept out together with a part, and that stay as they are.

    Raises:
        ValueError: the source is quantized by another method, which cannot be mixed with this one.
    """
    made = copy.deepcopy(config)
    quantization = made.setdefault(
        "quantization_config",
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "config_groups": {},
            "ignore": [],
        },
    )
    if quantization.get("quant_method") != "compressed-tensors":
        raise ValueError(f"a checkpoint quantized by {quantization.get('quant_method')!r} cannot be prepared")
    groups: dict[str, Any] = quantization["config_groups"]
    number = len(groups)
    for name, width in bits.items():
        while f"group_{number}" in groups:
            number += 1
        weights = {
            "num_bits": width,
            "type": "int",
            "symmetric": True,
            "strategy": "group",
            "group_size": GROUP,
            "dynamic": False,
            "observer": "minmax",
        }
        groups[f"group_{number}"] = {
            "targets": [PARTS[name].target],
            "weights": weights,
            "input_activations": None,
            "output_activations": None,
            "format": "pack-quantized",
        }
    old = quantization.get("ignore") or []
    parts = [PARTS[name] for name in bits]
    quantization["ignore"] = [
        *(entry for entry in old if not any(excludes(entry, part) for part in parts)),
        *kept,
    ]
    return made

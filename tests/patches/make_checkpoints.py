"""Writes tiny random checkpoints of the served model and its DFlash2 drafter.

usage: python -m tests.patches.make_checkpoints FOLDER

The weights are the same at every run and on every layout (real files, not vLLM's dummy weights, which differ between
shardings). All but the `SPOKEN` rows of the output head are zero: so few tokens compete that a random drafter is
sometimes right, and all others have a logit of exactly 0.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from qwenlab.preparation.quantize import Floats, to_bfloat16
from qwenlab.preparation.tensors import TensorInfo, layout
from tests.lab.tiny_model import CONTEXT, LAYERS, Shape, TinyModel, write_documents

MODEL = TinyModel(
    hidden=128, intermediate=256, vocabulary=1024, heads=4, kv_heads=2, gdn_key_heads=2, gdn_value_heads=4
)
DRAFT_LAYERS, TAPS, GROUP, RANK = 2, 4, 64, 16
TARGET_LAYER_IDS = (1, 3, 5)
SPOKEN = range(40, 46)  # token ids
# Normal distributions by the end of a tensor's name: deviation, mean; the first that fits. The recurrent layers' inputs
# are large enough to have an output well above rounding: else the norm behind it blows the rounding up, and logits of
# the same model in bfloat16 and float32 are up to 1.7 apart instead of 0.3.
SPREADS = (
    ("embed_tokens.weight", 0.6, 0.0),
    ("lm_head.weight", 0.5, 0.0),
    ("in_proj_qkv.weight", 0.24, 0.0),
    ("conv1d.weight", 0.8, 0.0),
    ("A_log", 0.3, 0.0),
    ("dt_bias", 0.3, 0.0),
    ("linear_attn.norm.weight", 0.08, 1.0),
    ("base_kernel", 0.08, 0.5),
    ("", 0.08, 0.0),
)


def draft_config(model: TinyModel) -> dict[str, Any]:
    """config.json of the drafter."""
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": model.hidden,
        "intermediate_size": model.intermediate,
        "num_hidden_layers": DRAFT_LAYERS,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "vocab_size": model.vocabulary,
        "layer_types": ["sliding_attention"] * DRAFT_LAYERS,
        "sliding_window": 128,
        "use_sliding_window": True,
        "max_window_layers": 0,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000000,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "is_causal": False,
        "dflash_config": {
            "target_layer_ids": list(TARGET_LAYER_IDS),
            "mask_token_id": 7,
            "conv_kernel_size": TAPS,
            "conv_group_size": GROUP,
            "selector_rank": RANK,
            "selector_top_k": 8,
            "block_size": 8,
        },
        "block_size": 8,
        "num_target_layers": LAYERS,
    }


def draft_tensors(model: TinyModel) -> dict[str, Shape]:
    """Tensors of the drafter by name."""
    hidden, inner = model.hidden, model.intermediate
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    layer: dict[str, Shape] = {
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (key, hidden),
        "self_attn.v_proj.weight": (key, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "self_attn.q_norm.weight": (model.head_dim,),
        "self_attn.k_norm.weight": (model.head_dim,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    for conv in ("attention_conv", "mlp_conv"):
        layer[f"{conv}.base_kernel"] = (2, TAPS, hidden)
        layer[f"{conv}.kernel_projection.weight"] = (2 * TAPS * (hidden // GROUP), hidden)
    return {
        "fc.weight": (hidden, hidden * len(TARGET_LAYER_IDS)),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
        **{f"layers.{index}.{name}": shape for index in range(DRAFT_LAYERS) for name, shape in layer.items()},
        "candidate_selector.predecessor_codebook": (model.vocabulary, RANK),
        "candidate_selector.successor_codebook": (model.vocabulary, RANK),
        "candidate_selector.hidden_projection.weight": (RANK, hidden),
    }


def draw(name: str, shape: Shape, seed: int, *, norms: float) -> Floats:
    """Weights of a tensor; `norms`: mean of the norms' weights, 0 where the model adds one to them, else 1."""
    deviation, mean = next(one[1:] for one in SPREADS if name.endswith(one[0]))
    if len(shape) == 1 and name.endswith("norm.weight") and "linear_attn" not in name:
        mean = norms
    generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
    values: Floats = generator.normal(mean, deviation, shape).astype(np.float32)
    if name == "lm_head.weight":
        silent = np.ones(shape[0], dtype=bool)
        silent[list(SPOKEN)] = False
        values[silent] = 0
    return values


def write(folder: Path, config: dict[str, Any], tensors: Mapping[str, Shape], seed: int, *, norms: float) -> None:
    """Write one checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    write_documents(folder, config)
    header, _, _ = layout([TensorInfo(name, "BF16", shape) for name, shape in tensors.items()])
    with (folder / "model.safetensors").open("wb") as file:
        file.write(header)
        for name, shape in tensors.items():
            file.write(to_bfloat16(draw(name, shape, seed, norms=norms)).tobytes())


def main(folder: Path, model: TinyModel = MODEL) -> None:
    """Write `target` and `drafter` below `folder`. The target's vision tower is left out: text alone is served."""
    text = {name: shape for name, shape in model.tensors().items() if not name.startswith("model.visual.")}
    write(folder / "target", model.config(), text, 11, norms=0.0)
    write(folder / "drafter", draft_config(model), draft_tensors(model), 13, norms=1.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

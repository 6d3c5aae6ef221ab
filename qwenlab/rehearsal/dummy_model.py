"""Checkpoints without weights: config and tokenizer of the right shape, for `vllm serve --load-format dummy`.

Memory, start-up and speed of such an engine are real; its text and its natural draft acceptance are not.
Everything here needs only the standard library and the geometry tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qwenlab.planner.geometry import DrafterGeometry, ModelGeometry

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|image|>", "<|video|>", "<|vision|>", "<|/vision|>")
END_OF_TURN = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
# What the geometry tables leave out because no memory or speed depends on it.
ROPE = {
    "rope_type": "default",
    "rope_theta": 10_000_000,
    "partial_rotary_factor": 0.25,
    "mrope_section": [11, 11, 10],
    "mrope_interleaved": True,
}
VISION = {
    "model_type": "qwen3_5",
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "in_channels": 3,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [],
    "hidden_act": "gelu_pytorch_tanh",
    "initializer_range": 0.02,
}
# incoai/Qwen3.8-27B-DFlash2's published config, as vLLM 0.33.0 model_executor/models/qwen3_dflash.py reads it.
DRAFTER_ATTENTION_HEADS = 32
DRAFTER_MASK_TOKEN = 7
DRAFTER_SELECTOR = {"conv_kernel_size": 4, "conv_group_size": 64, "selector_rank": 256, "selector_top_k": 8}
DRAFTER_BLOCK = 8


_INTEGER_BITS = {"w8a16": 8, "w4a16": 4, "int4-autoround": 4}  # all three lie as compressed-tensors on the hub


def _integer_groups(bits: int) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", "re:.*in_proj_[ab]$", "re:.*visual.*"],
    }


def quantization(format_: str, model: ModelGeometry) -> dict[str, Any] | None:
    """`quantization_config` of a catalogue format; None for bf16.

    The layouts are those that vLLM 0.33.0 reads: block FP8 (`quantization/fp8.py`) and compressed-tensors packed
    integers. The two small gate projections and the convolution of a GDN layer stay in 16 bit in all of them.

    Raises:
        ValueError: a format whose layout is not known here.
    """
    layers = [f"model.language_model.layers.{number}" for number in range(model.layers)]
    small = [
        f"{layer}.linear_attn.{name}"
        for number, layer in enumerate(layers)
        if not model.is_full_attention(number)
        for name in ("conv1d", "in_proj_a", "in_proj_b")
    ]
    if format_ in ("bf16", "fp8-channel"):  # the latter is quantised while vLLM loads it
        return None
    if format_ == "fp8":
        return {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", "model.language_model.embed_tokens", "mtp.fc", *small],
        }
    if format_ in _INTEGER_BITS:
        return _integer_groups(_INTEGER_BITS[format_])
    raise ValueError(f"no dummy layout for the format {format_!r}")


def target_config(model: ModelGeometry, format_: str = "bf16") -> dict[str, Any]:
    """`config.json` of a Qwen3.5-architecture model of this geometry, in one of the catalogue's formats."""
    kinds = [
        "full_attention" if model.is_full_attention(layer) else "linear_attention" for layer in range(model.layers)
    ]
    text = {
        "model_type": "qwen3_5_text",
        "vocab_size": model.vocab_size,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.attention.query_heads,
        "num_key_value_heads": model.attention.kv_heads,
        "head_dim": model.attention.head_dim,
        "attn_output_gate": model.attention.output_gate,
        "linear_conv_kernel_dim": model.gdn.conv_kernel,
        "linear_key_head_dim": model.gdn.key_dim,
        "linear_value_head_dim": model.gdn.value_dim,
        "linear_num_key_heads": model.gdn.key_heads,
        "linear_num_value_heads": model.gdn.value_heads,
        "layer_types": kinds,
        "full_attention_interval": model.full_attention_interval,
        "max_position_embeddings": model.max_model_len,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_parameters": ROPE,
        "hidden_act": "silu",
        "attention_bias": False,
        "dtype": "bfloat16",
        "eos_token_id": END_OF_TURN,
        "mtp_num_hidden_layers": model.mtp_layers,
        "mamba_ssm_dtype": model.gdn.state_dtype,
    }
    quantized = quantization(format_, model)
    return {
        **({} if quantized is None else {"quantization_config": quantized}),
        "architectures": [model.architecture],
        "model_type": "qwen3_5",
        "text_config": text,
        "vision_config": {**VISION, "out_hidden_size": model.hidden_size},
        "tie_word_embeddings": False,
        "image_token_id": 3,
        "video_token_id": 4,
        "vision_start_token_id": 5,
        "vision_end_token_id": 6,
        "dtype": "bfloat16",
    }


def drafter_config(drafter: DrafterGeometry, model: ModelGeometry, format_: str = "bf16") -> dict[str, Any]:
    """`config.json` of a DFlash2 drafter of this geometry for `model`."""
    quantized = quantization(format_, model)
    return {
        **({} if quantized is None else {"quantization_config": quantized}),
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": drafter.hidden_size,
        "intermediate_size": model.intermediate_size,
        "num_hidden_layers": drafter.layers,
        "num_attention_heads": DRAFTER_ATTENTION_HEADS,
        "num_key_value_heads": drafter.kv_heads,
        "head_dim": drafter.head_dim,
        "vocab_size": model.vocab_size,
        "layer_types": ["sliding_attention"] * drafter.layers,
        "sliding_window": drafter.sliding_window,
        "use_sliding_window": True,
        "max_window_layers": 0,
        "max_position_embeddings": model.max_model_len,
        "rms_norm_eps": 1e-6,
        "rope_theta": ROPE["rope_theta"],
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "is_causal": False,
        "num_target_layers": model.layers,
        "block_size": DRAFTER_BLOCK,
        "dflash_config": {
            "target_layer_ids": list(drafter.target_layers),
            "mask_token_id": DRAFTER_MASK_TOKEN,
            "block_size": DRAFTER_BLOCK,
            **DRAFTER_SELECTOR,
        },
    }


def tokenizer(vocab_size: int) -> dict[str, Any]:
    """`tokenizer.json` with one word per id over the whole vocabulary, so that any generated id can be printed."""
    words = {f"w{number}": number for number in range(len(SPECIAL_TOKENS), vocab_size)}
    special = [
        {
            "id": number,
            "content": text,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for number, text in enumerate(SPECIAL_TOKENS)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {**{text: number for number, text in enumerate(SPECIAL_TOKENS)}, **words},
            "unk_token": "w100",
        },
    }


def write(folder: Path, config: Mapping[str, Any]) -> None:
    """Write a dummy checkpoint with this config and a tokenizer of its vocabulary into `folder`."""
    vocab_size = config.get("vocab_size") or config["text_config"]["vocab_size"]
    documents: dict[str, Any] = {
        "config.json": config,
        "tokenizer.json": tokenizer(vocab_size),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIAL_TOKENS[END_OF_TURN],
            "pad_token": SPECIAL_TOKENS[0],
            "chat_template": CHAT_TEMPLATE,
        },
        "generation_config.json": {"eos_token_id": END_OF_TURN},
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "processor_class": "Qwen3VLProcessor",
            "size": {"shortest_edge": 65_536, "longest_edge": 262_144},
            "patch_size": 16,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))

"""config.json of the target and of the block drafter, from the planner's own geometry, as the hub serves them."""

from __future__ import annotations

from typing import Any

from qwenlab.planner.geometry import drafters, models

TARGET, DRAFTER = "qwen3.8-27b", "dflash2"
QUERY_HEADS = 32  # of the drafter


def target() -> dict[str, Any]:
    """The multimodal model: full attention every fourth layer, Gated DeltaNet between, one MTP layer."""
    model = models()[TARGET]
    heads, gdn = model.attention, model.gdn
    kinds = ["full_attention" if model.is_full_attention(i) else "linear_attention" for i in range(model.layers)]
    text = {
        "model_type": "qwen3_5_text",
        "num_hidden_layers": model.layers,
        "layer_types": kinds,
        "full_attention_interval": model.full_attention_interval,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "hidden_act": "silu",
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_model_len,
        "num_attention_heads": heads.query_heads,
        "num_key_value_heads": heads.kv_heads,
        "head_dim": heads.head_dim,
        "attn_output_gate": heads.output_gate,
        "attention_bias": False,
        "linear_num_key_heads": gdn.key_heads,
        "linear_num_value_heads": gdn.value_heads,
        "linear_key_head_dim": gdn.key_dim,
        "linear_value_head_dim": gdn.value_dim,
        "linear_conv_kernel_dim": gdn.conv_kernel,
        "mamba_ssm_dtype": gdn.state_dtype,
        "mtp_num_hidden_layers": model.mtp_layers,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
            "partial_rotary_factor": 0.25,
            "mrope_section": [11, 11, 10],
            "mrope_interleaved": True,
        },
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        "eos_token_id": 2,
    }
    vision = {
        "model_type": "qwen3_5",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": model.hidden_size,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [],
        "hidden_act": "gelu_pytorch_tanh",
    }
    tokens = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    return {
        "architectures": [model.architecture],
        "model_type": "qwen3_5",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": vision,
        **{name: 10 + place for place, name in enumerate(tokens)},
    }


def drafter() -> dict[str, Any]:
    """The DFlash2 drafter: sliding-window layers that read hidden states of the target."""
    model, block = models()[TARGET], drafters()[DRAFTER]
    size = block.trained_tokens + 1
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "num_hidden_layers": block.layers,
        "layer_types": ["sliding_attention"] * block.layers,
        "sliding_window": block.sliding_window,
        "use_sliding_window": True,
        "max_window_layers": 0,
        "num_attention_heads": QUERY_HEADS,
        "num_key_value_heads": block.kv_heads,
        "head_dim": block.head_dim,
        "attention_bias": False,
        "is_causal": False,
        "hidden_size": model.hidden_size,
        "intermediate_size": model.intermediate_size,
        "hidden_act": "silu",
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_model_len,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000_000,
        "tie_word_embeddings": False,
        "num_target_layers": model.layers,
        "block_size": size,
        "dflash_config": {
            "target_layer_ids": list(block.target_layers),
            "mask_token_id": 7,
            "block_size": size,
            "selector_rank": 256,
            "selector_top_k": 8,
            "conv_kernel_size": 4,
            "conv_group_size": 64,
        },
    }

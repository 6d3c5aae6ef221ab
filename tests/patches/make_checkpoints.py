"""Writes tiny random checkpoints of the served model and its DFlash2 drafter: `python make_checkpoints.py FOLDER`.

Runs under the interpreter of `tests.vllm_env`, which has torch, safetensors and tokenizers. The weights are the same
at every run and on every layout (real files, not vLLM's dummy weights, which differ between shardings). All but
`SPOKEN` rows of the output head are zero: so few tokens compete that a random drafter is sometimes right.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LAYERS, HIDDEN, INTER, VOCAB = 8, 128, 256, 1024
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 64
GDN_K_HEADS, GDN_V_HEADS, GDN_DIM, CONV = 2, 4, 64, 4
DRAFT_LAYERS, TAPS, GROUP, RANK = 2, 4, 64, 16
TARGET_LAYER_IDS = (1, 3, 5)
SPOKEN = 6
FULL = 4  # every fourth layer is full attention

Weights = dict[str, torch.Tensor]
Draw = Callable[..., torch.Tensor]


def drawer(seed: int) -> Draw:
    """A function that draws normally distributed weights of a shape, always the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, std: float = 0.08, mean: float = 0.0) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * std + mean

    return draw


def text_config() -> dict[str, Any]:
    return {
        "model_type": "qwen3_5_text",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INTER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "linear_conv_kernel_dim": CONV,
        "linear_key_head_dim": GDN_DIM,
        "linear_value_head_dim": GDN_DIM,
        "linear_num_key_heads": GDN_K_HEADS,
        "linear_num_value_heads": GDN_V_HEADS,
        "layer_types": ["full_attention" if (i + 1) % FULL == 0 else "linear_attention" for i in range(LAYERS)],
        "full_attention_interval": FULL,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000000,
            "partial_rotary_factor": 0.25,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
        "hidden_act": "silu",
        "attention_bias": False,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": 2,
        "mtp_num_hidden_layers": 1,
        "mamba_ssm_dtype": "float32",
    }


def vision_config() -> dict[str, Any]:
    return {
        "model_type": "qwen3_5",
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "in_channels": 3,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 256,
        "deepstack_visual_indexes": [],
        "hidden_act": "gelu_pytorch_tanh",
        "initializer_range": 0.02,
    }


def target_config() -> dict[str, Any]:
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text_config(),
        "vision_config": vision_config(),
        "tie_word_embeddings": False,
        "image_token_id": 3,
        "video_token_id": 4,
        "vision_start_token_id": 5,
        "vision_end_token_id": 6,
        "dtype": "bfloat16",
    }


def draft_config() -> dict[str, Any]:
    return {
        "architectures": ["DFlash2DraftModel"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": INTER,
        "num_hidden_layers": DRAFT_LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "layer_types": ["sliding_attention"] * DRAFT_LAYERS,
        "sliding_window": 128,
        "use_sliding_window": True,
        "max_window_layers": 0,
        "max_position_embeddings": 4096,
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


def mlp(draw: Draw, at: str) -> Iterator[tuple[str, torch.Tensor]]:
    yield f"{at}.mlp.gate_proj.weight", draw(INTER, HIDDEN)
    yield f"{at}.mlp.up_proj.weight", draw(INTER, HIDDEN)
    yield f"{at}.mlp.down_proj.weight", draw(HIDDEN, INTER)


def attention(draw: Draw, at: str, *, gated: bool) -> Iterator[tuple[str, torch.Tensor]]:
    yield f"{at}.self_attn.q_proj.weight", draw(HEADS * HEAD_DIM * (2 if gated else 1), HIDDEN)
    yield f"{at}.self_attn.k_proj.weight", draw(KV_HEADS * HEAD_DIM, HIDDEN)
    yield f"{at}.self_attn.v_proj.weight", draw(KV_HEADS * HEAD_DIM, HIDDEN)
    yield f"{at}.self_attn.o_proj.weight", draw(HIDDEN, HEADS * HEAD_DIM)
    mean = 0.0 if gated else 1.0  # Qwen3.5's norms add one to the weight
    yield f"{at}.self_attn.q_norm.weight", draw(HEAD_DIM, mean=mean)
    yield f"{at}.self_attn.k_norm.weight", draw(HEAD_DIM, mean=mean)


def norms(draw: Draw, at: str, mean: float) -> Iterator[tuple[str, torch.Tensor]]:
    yield f"{at}.input_layernorm.weight", draw(HIDDEN, mean=mean)
    yield f"{at}.post_attention_layernorm.weight", draw(HIDDEN, mean=mean)


def gdn(draw: Draw, at: str) -> Iterator[tuple[str, torch.Tensor]]:
    key, value = GDN_K_HEADS * GDN_DIM, GDN_V_HEADS * GDN_DIM
    yield f"{at}.linear_attn.in_proj_qkv.weight", draw(2 * key + value, HIDDEN)
    yield f"{at}.linear_attn.in_proj_z.weight", draw(value, HIDDEN)
    yield f"{at}.linear_attn.in_proj_b.weight", draw(GDN_V_HEADS, HIDDEN)
    yield f"{at}.linear_attn.in_proj_a.weight", draw(GDN_V_HEADS, HIDDEN)
    yield f"{at}.linear_attn.conv1d.weight", draw(2 * key + value, 1, CONV, std=0.4)
    yield f"{at}.linear_attn.A_log", draw(GDN_V_HEADS, std=0.3)
    yield f"{at}.linear_attn.dt_bias", draw(GDN_V_HEADS, std=0.3)
    yield f"{at}.linear_attn.norm.weight", draw(GDN_DIM, mean=1.0)
    yield f"{at}.linear_attn.out_proj.weight", draw(HIDDEN, value)


def target_weights() -> Weights:
    draw = drawer(11)
    weights: Weights = {"model.language_model.embed_tokens.weight": draw(VOCAB, HIDDEN, std=0.3)}
    for index in range(LAYERS):
        at = f"model.language_model.layers.{index}"
        full = (index + 1) % FULL == 0
        weights.update(attention(draw, at, gated=True) if full else gdn(draw, at))
        weights.update(mlp(draw, at))
        weights.update(norms(draw, at, mean=0.0))
    weights["model.language_model.norm.weight"] = draw(HIDDEN)
    head = torch.zeros(VOCAB, HIDDEN)
    head[40 : 40 + SPOKEN] = draw(SPOKEN, HIDDEN, std=0.5)
    weights["lm_head.weight"] = head
    weights["mtp.fc.weight"] = draw(HIDDEN, 2 * HIDDEN)
    weights.update(attention(draw, "mtp.layers.0", gated=True))
    weights.update(mlp(draw, "mtp.layers.0"))
    weights.update(norms(draw, "mtp.layers.0", mean=0.0))
    for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding"):
        weights[f"mtp.{name}.weight"] = draw(HIDDEN)
    return weights


def draft_weights() -> Weights:
    draw = drawer(13)
    weights: Weights = {"fc.weight": draw(HIDDEN, HIDDEN * len(TARGET_LAYER_IDS))}
    for name in ("hidden_norm", "norm"):
        weights[f"{name}.weight"] = draw(HIDDEN, mean=1.0)
    for index in range(DRAFT_LAYERS):
        at = f"layers.{index}"
        weights.update(attention(draw, at, gated=False))
        weights.update(mlp(draw, at))
        weights.update(norms(draw, at, mean=1.0))
        for conv in ("attention_conv", "mlp_conv"):
            weights[f"{at}.{conv}.base_kernel"] = draw(2, TAPS, HIDDEN, mean=0.5)
            weights[f"{at}.{conv}.kernel_projection.weight"] = draw(2 * TAPS * (HIDDEN // GROUP), HIDDEN)
    weights["candidate_selector.predecessor_codebook"] = draw(VOCAB, RANK)
    weights["candidate_selector.successor_codebook"] = draw(VOCAB, RANK)
    weights["candidate_selector.hidden_projection.weight"] = draw(RANK, HIDDEN)
    return weights


def tokenizer_files(folder: Path) -> None:
    tokenizer: Any = Tokenizer(models.BPE(byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["the rack hums and the fans turn while tokens come and go"] * 50, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 4096,
        "chat_template": template + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    processor = {
        "size": {"shortest_edge": 65536, "longest_edge": 262144},
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def write(folder: Path, config: dict[str, Any], weights: Weights) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer_files(folder)
    save_file(
        {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in weights.items()}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def main(folder: Path) -> None:
    write(folder / "target", target_config(), target_weights())
    write(folder / "drafter", draft_config(), draft_weights())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""A tiny Qwen3.5: configuration, tensor names and shapes, tokenizer; whoever writes a checkpoint draws the weights.

Hybrid layers, MTP layer, vision tower. Tensor names are those of the published checkpoints, as vLLM's
model_executor/models/qwen3_5.py and qwen3_5_mtp.py load them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.byte_pairs import tokenizer

LAYERS, CONTEXT, CONV_KERNEL = 8, 4096, 4
VISION_HIDDEN, VISION_INTERMEDIATE, VISION_DEPTH, PATCH, MERGE = 64, 128, 2, 16, 2
LAYER_TYPES = ["full_attention" if index % 4 == 3 else "linear_attention" for index in range(LAYERS)]
TOKENS = 512  # that the tokenizer knows

SPECIAL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
END_OF_TURN = SPECIAL_TOKENS.index("<|im_end|>")

CHAT_TEMPLATE = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% else %}
{%- for part in message.content -%}
{% if part.type == 'text' %}{{ part.text }}{% else %}<|vision_start|><|image_pad|><|vision_end|>{% endif %}
{%- endfor -%}
{% endif %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TinyModel:
    """Sizes of a model; `head_dim` is that of attention and of the recurrence."""

    hidden: int
    intermediate: int
    vocabulary: int
    heads: int
    kv_heads: int
    gdn_key_heads: int
    gdn_value_heads: int
    head_dim: int = 64

    def text_config(self) -> dict[str, Any]:
        """`text_config` of config.json."""
        return {
            "model_type": "qwen3_5_text",
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "linear_conv_kernel_dim": CONV_KERNEL,
            "linear_key_head_dim": self.head_dim,
            "linear_value_head_dim": self.head_dim,
            "linear_num_key_heads": self.gdn_key_heads,
            "linear_num_value_heads": self.gdn_value_heads,
            "layer_types": LAYER_TYPES,
            "full_attention_interval": 4,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000000,
                "partial_rotary_factor": 0.25,
                "mrope_section": [part * self.head_dim // 32 for part in (2, 1, 1)],  # half of the rotated quarter
                "mrope_interleaved": True,
            },
            "hidden_act": "silu",
            "attention_bias": False,
            "attn_output_gate": True,
            "dtype": "bfloat16",
            "eos_token_id": END_OF_TURN,
            "mtp_num_hidden_layers": 1,
            "mamba_ssm_dtype": "float32",
        }

    def config(self) -> dict[str, Any]:
        """Content of config.json."""
        return {
            "architectures": ["Qwen3_5ForConditionalGeneration"],
            "model_type": "qwen3_5",
            "dtype": "bfloat16",
            "tie_word_embeddings": False,
            "text_config": self.text_config(),
            "vision_config": {
                "model_type": "qwen3_5",
                "depth": VISION_DEPTH,
                "hidden_size": VISION_HIDDEN,
                "intermediate_size": VISION_INTERMEDIATE,
                "num_heads": 4,
                "patch_size": PATCH,
                "spatial_merge_size": MERGE,
                "temporal_patch_size": 2,
                "in_channels": 3,
                "out_hidden_size": self.hidden,
                "num_position_embeddings": 256,
                "deepstack_visual_indexes": [],
                "hidden_act": "gelu_pytorch_tanh",
                "initializer_range": 0.02,
            },
            "image_token_id": SPECIAL_TOKENS.index("<|image_pad|>"),
            "video_token_id": SPECIAL_TOKENS.index("<|video_pad|>"),
            "vision_start_token_id": SPECIAL_TOKENS.index("<|vision_start|>"),
            "vision_end_token_id": SPECIAL_TOKENS.index("<|vision_end|>"),
        }

    def tensors(self) -> dict[str, Shape]:
        """Every tensor by its published name."""
        found: dict[str, Shape] = {"model.language_model.embed_tokens.weight": (self.vocabulary, self.hidden)}
        for index, kind in enumerate(LAYER_TYPES):
            found |= self._layer(f"model.language_model.layers.{index}.", kind)
        found |= {"model.language_model.norm.weight": (self.hidden,), "lm_head.weight": (self.vocabulary, self.hidden)}
        found |= self._layer("mtp.layers.0.", "full_attention")
        norms = ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")
        found |= {
            "mtp.fc.weight": (self.hidden, 2 * self.hidden),
            **{f"mtp.{norm}.weight": (self.hidden,) for norm in norms},
        }
        return found | self._vision()

    def _layer(self, prefix: str, kind: str) -> dict[str, Shape]:
        keys, values = self.gdn_key_heads * self.head_dim, self.gdn_value_heads * self.head_dim
        mixers: dict[str, dict[str, Shape]] = {
            "full_attention": {
                "self_attn.q_proj.weight": (
                    2 * self.heads * self.head_dim,
                    self.hidden,
                ),  # queries and their output gate
                "self_attn.k_proj.weight": (self.kv_heads * self.head_dim, self.hidden),
                "self_attn.v_proj.weight": (self.kv_heads * self.head_dim, self.hidden),
                "self_attn.o_proj.weight": (self.hidden, self.heads * self.head_dim),
                "self_attn.q_norm.weight": (self.head_dim,),
                "self_attn.k_norm.weight": (self.head_dim,),
            },
            "linear_attention": {
                "linear_attn.dt_bias": (self.gdn_value_heads,),
                "linear_attn.A_log": (self.gdn_value_heads,),
                "linear_attn.conv1d.weight": (2 * keys + values, 1, CONV_KERNEL),
                "linear_attn.norm.weight": (self.head_dim,),
                "linear_attn.out_proj.weight": (self.hidden, values),
                "linear_attn.in_proj_qkv.weight": (2 * keys + values, self.hidden),
                "linear_attn.in_proj_z.weight": (values, self.hidden),
                "linear_attn.in_proj_b.weight": (self.gdn_value_heads, self.hidden),
                "linear_attn.in_proj_a.weight": (self.gdn_value_heads, self.hidden),
            },
        }
        parts: dict[str, Shape] = {
            **mixers[kind],
            "mlp.gate_proj.weight": (self.intermediate, self.hidden),
            "mlp.up_proj.weight": (self.intermediate, self.hidden),
            "mlp.down_proj.weight": (self.hidden, self.intermediate),
            "input_layernorm.weight": (self.hidden,),
            "post_attention_layernorm.weight": (self.hidden,),
        }
        return {prefix + name: shape for name, shape in parts.items()}

    def _vision(self) -> dict[str, Shape]:
        width, merged = VISION_HIDDEN, VISION_HIDDEN * MERGE**2
        linear: dict[str, Shape] = {"patch_embed.proj": (width, 3, 2, PATCH, PATCH), "merger.norm": (width,)}
        linear |= {"merger.linear_fc1": (merged, merged), "merger.linear_fc2": (self.hidden, merged)}
        for block in range(VISION_DEPTH):
            parts: dict[str, Shape] = {
                "norm1": (width,),
                "norm2": (width,),
                "attn.qkv": (3 * width, width),
                "attn.proj": (width, width),
                "mlp.linear_fc1": (VISION_INTERMEDIATE, width),
                "mlp.linear_fc2": (width, VISION_INTERMEDIATE),
            }
            linear |= {f"blocks.{block}.{name}": shape for name, shape in parts.items()}
        found: dict[str, Shape] = {"model.visual.pos_embed.weight": (256, width)}
        for name, shape in linear.items():
            found |= {f"model.visual.{name}.weight": shape, f"model.visual.{name}.bias": shape[:1]}
        return found


def write_documents(directory: Path, config: dict[str, Any]) -> None:
    """Write everything but the weights: configuration, tokenizer, chat template, image processor."""
    pixels = {"shortest_edge": 65536, "longest_edge": 262144}
    documents: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": {"eos_token_id": END_OF_TURN, "do_sample": False},
        "tokenizer.json": tokenizer(SPECIAL_TOKENS, TOKENS),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": CONTEXT,
        },
        "preprocessor_config.json": {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "processor_class": "Qwen3VLProcessor",
            "size": pixels,
            "patch_size": PATCH,
            "temporal_patch_size": 2,
            "merge_size": MERGE,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)

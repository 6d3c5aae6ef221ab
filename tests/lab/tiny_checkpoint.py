"""A tiny checkpoint with the shape of Qwen3.5: hybrid layers, vision tower, MTP layer, own tokenizer.

Real vLLM loads and serves it on a CPU. Weights are random but fixed by the seed, so that greedy answers are the same
on every machine with the same engine. Tensor names are those of the published checkpoints, as vLLM's
model_executor/models/qwen3_5.py and qwen3_5_mtp.py load them. Made with the standard library alone.

Run as a program it writes one: `python -m tests.lab.tiny_checkpoint DIRECTORY`.
"""

from __future__ import annotations

import json
import math
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.lab.byte_pairs import tokenizer

REPOSITORY = "lab/tiny-qwen3.5"

HIDDEN, INTERMEDIATE, LAYERS, VOCABULARY, CONTEXT = 256, 512, 8, 512, 4096
HEADS, KV_HEADS, HEAD_DIM = 8, 4, 64
GDN_KEY_HEADS, GDN_VALUE_HEADS, GDN_HEAD_DIM, GDN_KERNEL = 4, 8, 64, 4
VISION_HIDDEN, VISION_INTERMEDIATE, VISION_DEPTH, PATCH, MERGE = 64, 128, 2, 16, 2
LAYER_TYPES = ["full_attention" if index % 4 == 3 else "linear_attention" for index in range(LAYERS)]

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


def text_config() -> dict[str, Any]:
    """`text_config` of config.json."""
    return {
        "model_type": "qwen3_5_text",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "linear_conv_kernel_dim": GDN_KERNEL,
        "linear_key_head_dim": GDN_HEAD_DIM,
        "linear_value_head_dim": GDN_HEAD_DIM,
        "linear_num_key_heads": GDN_KEY_HEADS,
        "linear_num_value_heads": GDN_VALUE_HEADS,
        "layer_types": LAYER_TYPES,
        "full_attention_interval": 4,
        "max_position_embeddings": CONTEXT,
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
        "eos_token_id": END_OF_TURN,
        "mtp_num_hidden_layers": 1,
        "mamba_ssm_dtype": "float32",
    }


def config() -> dict[str, Any]:
    """Content of config.json."""
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        "text_config": text_config(),
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
            "out_hidden_size": HIDDEN,
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


def tensors() -> dict[str, Shape]:
    """Every tensor by its published name."""
    found: dict[str, Shape] = {"model.language_model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for index, kind in enumerate(LAYER_TYPES):
        found |= _layer(f"model.language_model.layers.{index}.", kind)
    found |= {"model.language_model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    found |= _layer("mtp.layers.0.", "full_attention")
    norms = ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")
    found |= {"mtp.fc.weight": (HIDDEN, 2 * HIDDEN), **{f"mtp.{norm}.weight": (HIDDEN,) for norm in norms}}
    return found | _vision()


def _layer(prefix: str, kind: str) -> dict[str, Shape]:
    keys, values = GDN_KEY_HEADS * GDN_HEAD_DIM, GDN_VALUE_HEADS * GDN_HEAD_DIM
    mixers: dict[str, dict[str, Shape]] = {
        "full_attention": {
            "self_attn.q_proj.weight": (2 * HEADS * HEAD_DIM, HIDDEN),  # queries and their output gate
            "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            "self_attn.q_norm.weight": (HEAD_DIM,),
            "self_attn.k_norm.weight": (HEAD_DIM,),
        },
        "linear_attention": {
            "linear_attn.dt_bias": (GDN_VALUE_HEADS,),
            "linear_attn.A_log": (GDN_VALUE_HEADS,),
            "linear_attn.conv1d.weight": (2 * keys + values, 1, GDN_KERNEL),
            "linear_attn.norm.weight": (GDN_HEAD_DIM,),
            "linear_attn.out_proj.weight": (HIDDEN, values),
            "linear_attn.in_proj_qkv.weight": (2 * keys + values, HIDDEN),
            "linear_attn.in_proj_z.weight": (values, HIDDEN),
            "linear_attn.in_proj_b.weight": (GDN_VALUE_HEADS, HIDDEN),
            "linear_attn.in_proj_a.weight": (GDN_VALUE_HEADS, HIDDEN),
        },
    }
    parts: dict[str, Shape] = {
        **mixers[kind],
        "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        "input_layernorm.weight": (HIDDEN,),
        "post_attention_layernorm.weight": (HIDDEN,),
    }
    return {prefix + name: shape for name, shape in parts.items()}


def _vision() -> dict[str, Shape]:
    width, merged = VISION_HIDDEN, VISION_HIDDEN * MERGE**2
    linear: dict[str, Shape] = {"patch_embed.proj": (width, 3, 2, PATCH, PATCH), "merger.norm": (width,)}
    linear |= {"merger.linear_fc1": (merged, merged), "merger.linear_fc2": (HIDDEN, merged)}
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


_HALVES = bytes((value & 0x80) | 0x3C for value in range(256))  # sign, upper exponent bits
_QUARTERS = bytes((value & 0x7F) | 0x80 for value in range(256))  # lowest exponent bit, mantissa


def _content(name: str, shape: Shape, source: random.Random) -> bytes:
    """bfloat16 values: matrices are random with magnitudes from 1/64 to 1/32, norms and biases are neutral."""
    count = math.prod(shape)
    if len(shape) == 1:
        # Qwen3.5's RMSNorm multiplies by 1 + weight; the gated norm of GDN and the vision tower's LayerNorm by weight.
        by_weight = ("linear_attn.norm.weight", "norm1.weight", "norm2.weight", "merger.norm.weight")
        return (b"\x80\x3f" if name.endswith(by_weight) else b"\0\0") * count
    values = bytearray(2 * count)
    values[0::2] = source.randbytes(count).translate(_QUARTERS)
    values[1::2] = source.randbytes(count).translate(_HALVES)
    if name == "lm_head.weight":
        _silence(values)
    return bytes(values)


def _silence(values: bytearray) -> None:
    """Zero the rows of all tokens but plain text, so that greedy answers can be read and end by length alone."""
    row = 2 * HIDDEN
    vocabulary: dict[str, int] = tokenizer(SPECIAL_TOKENS, VOCABULARY)["model"]["vocab"]
    for token, index in vocabulary.items():
        if not token.removeprefix("Ġ").isascii() or index < len(SPECIAL_TOKENS):
            values[index * row : (index + 1) * row] = bytes(row)


def shards(seed: int, count: int) -> Iterator[tuple[str, list[str], bytes]]:
    """Name, tensor names and content of each safetensors file."""
    source = random.Random(seed)
    everything = list(tensors().items())
    size = math.ceil(len(everything) / count)
    for number in range(count):
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        body = bytearray()
        for name, shape in everything[number * size : (number + 1) * size]:
            content = _content(name, shape, source)
            offsets = [len(body), len(body) + len(content)]
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": offsets}
            body += content
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        names = [name for name in header if name != "__metadata__"]
        file = f"model-{number + 1:05}-of-{count:05}.safetensors"
        yield file, names, struct.pack("<Q", len(text)) + text + body


def write(directory: Path, *, seed: int = 0, files: int = 2) -> Path:
    """Write the checkpoint (18 MB) into `directory`, its weights spread over `files` files; returns `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for file, names, content in shards(seed, files):
        (directory / file).write_bytes(content)
        weight_map |= dict.fromkeys(names, file)
    total = sum(2 * math.prod(shape) for shape in tensors().values())
    pixels = {"shortest_edge": 65536, "longest_edge": 262144}
    documents: dict[str, Any] = {
        "config.json": config(),
        "generation_config.json": {"eos_token_id": END_OF_TURN, "do_sample": False},
        "model.safetensors.index.json": {"metadata": {"total_size": total}, "weight_map": weight_map},
        "tokenizer.json": tokenizer(SPECIAL_TOKENS, VOCABULARY),
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
    return directory


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))

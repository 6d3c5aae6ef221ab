"""A tiny checkpoint with the shape of Qwen3.5 (see `tiny_model`), its vision tower included.

Real vLLM loads and serves it on a CPU. Weights are random but fixed by the seed, so that greedy answers are the same
on every machine with the same engine. Made with the standard library alone.

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
from tests.lab.tiny_model import END_OF_TURN, SPECIAL_TOKENS, TOKENS, Shape, TinyModel, write_documents

__all__ = ["END_OF_TURN", "MODEL", "REPOSITORY", "VOCABULARY", "shards", "tensors", "write"]

REPOSITORY = "lab/tiny-qwen3.5"
VOCABULARY = TOKENS
MODEL = TinyModel(
    hidden=256, intermediate=512, vocabulary=VOCABULARY, heads=8, kv_heads=4, gdn_key_heads=4, gdn_value_heads=8
)


def tensors() -> dict[str, Shape]:
    """Every tensor by its published name."""
    return MODEL.tensors()


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
    row = 2 * MODEL.hidden
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
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    write_documents(directory, MODEL.config())
    return directory


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))

"""The tiny checkpoint is well-formed, the same every time, and its tokenizer encodes any text."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

from tokenizers import Tokenizer

from tests.lab import tiny_checkpoint
from tests.lab.byte_pairs import CORPUS


def digest(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_weights(tmp_path: Path) -> None:
    first = digest(tiny_checkpoint.write(tmp_path / "a"))
    assert first == digest(tiny_checkpoint.write(tmp_path / "b"))
    other = digest(tiny_checkpoint.write(tmp_path / "c", seed=1))
    assert {name for name in first if first[name] != other[name]} == {
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    }


def test_every_tensor_is_in_the_file_that_the_index_names(tmp_path: Path) -> None:
    place = tiny_checkpoint.write(tmp_path)
    weight_map = json.loads((place / "model.safetensors.index.json").read_text())["weight_map"]
    assert weight_map.keys() == tiny_checkpoint.tensors().keys()
    for name, shape in tiny_checkpoint.tensors().items():
        content = (place / weight_map[name]).read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        entry = json.loads(content[8 : 8 + length])[name]
        begin, end = entry["data_offsets"]
        assert end - begin == 2 * math.prod(shape) == 2 * math.prod(entry["shape"])
        assert 8 + length + end <= len(content)


def test_the_tokenizer_encodes_any_text_and_knows_the_turns(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(tiny_checkpoint.write(tmp_path) / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == tiny_checkpoint.VOCABULARY
    for text in (CORPUS, "Grüße, 世界 🚢\n\ttabs", "<|im_start|>user\nHello<|im_end|>"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert tokenizer.encode("<|im_end|>").ids == [tiny_checkpoint.END_OF_TURN]
    assert len(tokenizer.encode(CORPUS).ids) < len(CORPUS.encode()) / 2

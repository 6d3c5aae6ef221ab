"""A byte-level BPE tokenizer, trained on a few sentences: small, deterministic, able to encode any text."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

CORPUS = """
Rivers carry sand from the mountains to the sea, and the sea carries it back to the shore. A small house near the
harbour has a green door, three windows and a lamp that burns the whole night. The keeper writes down every ship that
passes: her name, her flag, where she comes from and where she wants to go. When the fog is thick he rings the bell
once every minute, and when the morning is clear he walks along the beach and counts the birds. There are always more
of them than he can count. In winter the letters come late, sometimes two or three weeks late, so he reads each of
them twice. The answer to a question that was asked in autumn reaches him in spring. Nothing is lost by waiting, he
says, what matters is that somebody has asked, that somebody has listened, and that the light was on.
"""


def byte_alphabet() -> list[str]:
    """The printable character that stands for each byte value in byte-level BPE (the GPT-2 mapping)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    spare = iter(range(256, 512))
    return [chr(value) if value in printable else chr(next(spare)) for value in range(256)]


def train(merges_wanted: int) -> list[tuple[str, str]]:
    """The most frequent pairs of `CORPUS`, one after the other; ties go to the pair that sorts first."""
    alphabet = byte_alphabet()
    words = Counter(" " + word for word in CORPUS.split())
    pieces = {word: [alphabet[byte] for byte in word.encode()] for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < merges_wanted:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in pieces.items():
            for pair in itertools.pairwise(parts):
                pairs[pair] += words[word]
        if not pairs:
            raise ValueError(f"the corpus is used up after {len(merges)} merges")
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        pieces = {word: _merged(parts, best) for word, parts in pieces.items()}
    return merges


def tokenizer(special: list[str], vocabulary_size: int) -> dict[str, Any]:
    """Content of `tokenizer.json`: `special` tokens first, then bytes, then merges up to `vocabulary_size`."""
    alphabet = byte_alphabet()
    merges = train(vocabulary_size - len(special) - len(alphabet))
    tokens = [*special, *alphabet, *(left + right for left, right in merges)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token, **flags} for index, token in enumerate(special)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [list(pair) for pair in merges],
        },
    }


def _merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    merged: list[str] = []
    for part in parts:
        if merged and (merged[-1], part) == pair:
            merged[-1] += part
        else:
            merged.append(part)
    return merged

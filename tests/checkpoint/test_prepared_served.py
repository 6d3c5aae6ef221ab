"""Real vLLM loads and serves a prepared checkpoint, and says with it what its codes stand for.

The tiny model's output head has few rows that are not zero, and a row of zeros has a logit of exactly 0: a token's
log-probability less that of such a token is its logit. So logits are compared, each against a bound that is worked out,
none is chosen: one rounding to bfloat16 where only the kernel differs, the quantizer's own error where weights do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from qwenlab.preparation.prepare import prepare
from qwenlab.preparation.quantize import Error, Floats, Halves, from_bfloat16, quantize, to_bfloat16
from qwenlab.preparation.tensors import ShardWriter, pieces, read_header
from qwenlab.remote.checkpoint import manifest
from qwenlab.remote.checkpoint.status import Status
from tests.checkpoint.test_preparation import tensor, unpacked, whole
from tests.patches import make_checkpoints
from tests.patches.make_checkpoints import SPOKEN
from tests.patches.served import Answer, serve
from tests.patches.trees import Tree, patched
from tests.vllm_env import environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]
VERSION = "0.33.0"
PROMPT = (15, 16, 17, 18, 19, 20)
TOKENS = 24
FORCED = tuple((number * 37) % 900 + 20 for number in range(200))
MTP = ("--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": 2}))

UNPACK = """
import json, sys, torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
words, bits, rows, columns = json.load(sys.stdin)
print(json.dumps(unpack_from_int32(torch.tensor(words, dtype=torch.int32), bits, torch.Size((rows, columns))).tolist()))
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny checkpoint of the served model's shape, as a fetch leaves it."""
    folder = tmp_path_factory.mktemp("source")
    make_checkpoints.main(folder)
    return whole(folder / "target")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """vLLM with the series, which lets the embedding be quantized."""
    return patched(VERSION, tmp_path_factory.mktemp("tree"))


@pytest.mark.parametrize("bits", [4, 8])
def test_compressed_tensors_reads_the_words_as_the_codes_that_went_in(bits: int) -> None:
    generator = np.random.default_rng(7)
    weights = from_bfloat16(to_bfloat16(generator.normal(size=(3, 256)).astype(np.float32)))
    words, scales = quantize(weights, bits, 128, Error())
    done = subprocess.run(
        [str(environment(VERSION).python), "-c", UNPACK],
        input=json.dumps([words.tolist(), bits, 3, 256]),
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    codes = np.array(json.loads(done.stdout.splitlines()[-1]), dtype=np.float32)
    steps = np.repeat(from_bfloat16(scales), 128, axis=1)
    assert np.all(np.abs(codes * steps - weights) <= steps * 0.5001)


def dequantised(source: Path, made: Path, target: Path, bits: dict[str, int]) -> Path:
    """The source with each requantised tensor replaced by what its codes stand for, in 16 bit."""
    shutil.copytree(source, target)
    for path in source.glob("*.safetensors"):
        tensors = read_header(path)
        with ShardWriter(target / path.name, list(tensors.values())) as writer:
            for name, info in tensors.items():
                if name in bits:
                    values = halves(name, unpacked(made, name, bits[name]).astype(np.float32))
                    writer.write(name, 0, values.data.cast("B"))
                else:
                    for offset, data in pieces(path, info):
                        writer.write(name, offset, data)
    return target


def halves(name: str, values: Floats) -> Halves:
    """bfloat16 as the engine comes to it: Triton's interpreter, which looks embeddings up here, cuts the rest off."""
    if "embed_tokens" in name:
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return to_bfloat16(values)


def prepared(source: Path, folder: Path, recipe: str) -> tuple[Path, dict[str, int]]:
    """A prepared checkpoint, and the bits of each tensor that was requantised."""
    made = folder / recipe / "target"
    prepare(source, made, recipe, Status(folder / "status.json"))
    known = manifest.read(made)
    assert known is not None
    return made, {name: noted["bits"] for name, noted in known.details["tensors"].items()}


@dataclass(frozen=True)
class Said:
    """What an engine said of a checkpoint: greedy answer, logits of spoken tokens at each place, draft counters."""

    answer: Answer
    logits: list[dict[int, float]]
    drafted: float
    accepted: float


def said(tree: Tree, checkpoint: Path, folder: Path, *arguments: str) -> Said:
    """Serve `checkpoint` and ask."""
    folder.mkdir()
    with serve(tree, checkpoint.parent, folder, *arguments) as server:
        answer = server.ask(PROMPT, TOKENS)
        return Said(
            answer,
            [spoken(place) for place in server.forced(FORCED)],
            server.metric("vllm:spec_decode_num_draft_tokens_total"),
            server.metric("vllm:spec_decode_num_accepted_tokens_total"),
        )


def spoken(place: dict[int, float]) -> dict[int, float]:
    """Logits of the tokens whose row of the head is not zero, from log-probabilities."""
    silent = [value for token, value in place.items() if token not in SPOKEN]
    return {token: place[token] - max(silent) for token in SPOKEN if token in place}


def largest_state(checkpoint: Path) -> float:
    """Largest 2-norm that the hidden state before the head can have: RMSNorm scales to sqrt(columns), then weighs."""
    weights = np.abs(1 + from_bfloat16(tensor(checkpoint, "model.language_model.norm.weight")))
    return float(np.sqrt(weights.size) * weights.max() * (1 + 2.0**-7))  # it is rounded to bfloat16 twice


def rounding(logit: float) -> float:
    """Distance of neighbouring bfloat16 numbers at a logit: two roundings of one sum differ by no more.

    The last 1e-4 is for the float32 log-softmax that the logit is taken back from.
    """
    return float(2.0 ** (np.floor(np.log2(max(abs(logit), 2.0**-20))) - 7)) + 1e-4


@pytest.mark.parametrize("recipe", ["int4-heads", "int8-heads"])
def test_the_engine_says_what_the_codes_stand_for(recipe: str, source: Path, tree: Tree, tmp_path: Path) -> None:
    """Head, embedding and MTP module, with MTP's drafts, against the same values in 16 bit."""
    made, bits = prepared(source, tmp_path, recipe)
    assert {name.split(".")[0] for name in bits} == {"lm_head", "model", "mtp"}
    plain = dequantised(source, made, tmp_path / "plain" / "target", bits)
    packed, wide = said(tree, made, tmp_path / "packed", *MTP), said(tree, plain, tmp_path / "wide", *MTP)
    for ours, theirs in zip(packed.logits, wide.logits, strict=True):
        for token in ours.keys() & theirs.keys():
            assert abs(ours[token] - theirs[token]) <= rounding(theirs[token]), token
    assert packed.answer.tokens == wide.answer.tokens
    assert packed.drafted == wide.drafted > 0
    assert packed.accepted == wide.accepted > 0


def test_logits_are_the_source_s_within_the_quantizer_s_error(source: Path, tree: Tree, tmp_path: Path) -> None:
    """Only the head is requantised, so hidden states are the same and each logit has a bound: |row error| |state|."""
    made, bits = prepared(source, tmp_path, "int8-head")
    assert list(bits) == ["lm_head.weight"]
    error = unpacked(made, "lm_head.weight", 8) - from_bfloat16(tensor(source, "lm_head.weight"))
    bounds = np.linalg.norm(error, axis=1) * largest_state(source)
    ours, theirs = (said(tree, folder, tmp_path / name) for folder, name in ((made, "made"), (source, "before")))
    compared = 0
    for mine, before in zip(ours.logits, theirs.logits, strict=True):
        for token in mine.keys() & before.keys():
            compared += 1
            assert abs(mine[token] - before[token]) <= bounds[token] + rounding(before[token]), token
    assert compared > len(FORCED)

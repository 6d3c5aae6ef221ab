"""Real vLLM loads and serves a prepared checkpoint, and says with it what it says with the source."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from qwenlab.preparation.prepare import prepare
from qwenlab.preparation.quantize import Error, from_bfloat16, quantize, to_bfloat16
from qwenlab.preparation.tensors import ShardWriter, pieces, read_header
from qwenlab.remote.checkpoint import manifest
from qwenlab.remote.checkpoint.status import Status
from tests.checkpoint.test_preparation import unpacked, whole
from tests.patches.served import serve
from tests.patches.trees import patched
from tests.vllm_env import environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]
VERSION = "0.33.0"
PROMPT = (5, 6, 7, 8, 9, 10)
TOKENS = 24
# nats: tokens as near as this may change places. Logits reach 15 in bfloat16, the packed head runs another kernel, and
# other drafts are accepted, so the recurrent layers sum in another order; wrong codes would be off by far more.
ROUNDING = 1.5

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
    maker = Path(__file__).parents[1] / "patches" / "make_checkpoints.py"
    python = environment(VERSION).python
    subprocess.run([str(python), str(maker), str(folder)], check=True, capture_output=True)
    return whole(folder / "target")


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
                    values = to_bfloat16(unpacked(made, name, bits[name]).astype(np.float32))
                    writer.write(name, 0, values.data.cast("B"))
                else:
                    for offset, data in pieces(path, info):
                        writer.write(name, offset, data)
    return target


def test_the_engine_answers_with_the_prepared_checkpoint_what_its_codes_stand_for(source: Path, tmp_path: Path) -> None:
    """Head and MTP module in 4 bit, embedding in 8: the widths that vLLM has CPU kernels for; MTP drafts are used."""
    tree = patched(VERSION, tmp_path / "tree")
    made = tmp_path / "prepared" / "target"
    prepare(source, made, "int4-heads", Status(tmp_path / "status.json"))
    known = manifest.read(made)
    assert known is not None
    bits = {name: noted["bits"] for name, noted in known.details["tensors"].items()}
    assert {part.split(".")[0] for part in bits} == {"lm_head", "model", "mtp"}
    plain = dequantised(source, made, tmp_path / "plain" / "target", bits)
    speculation = ("--speculative-config", json.dumps({"method": "mtp", "num_speculative_tokens": 2}))
    with serve(tree, made.parent, tmp_path, *speculation) as server:
        answer = server.ask(PROMPT, TOKENS)
        drafts = server.metric("vllm:spec_decode_num_draft_tokens_total")
    assert len(answer.tokens) == TOKENS
    assert drafts > 0
    with serve(tree, plain.parent, tmp_path, *speculation) as server:
        assert server.follow(PROMPT, answer, ROUNDING) == []

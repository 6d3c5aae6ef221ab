"""A prepared checkpoint holds what its source held, within half a step, in the layout that engines read."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qwenlab.preparation import prepare as preparation
from qwenlab.preparation.prepare import prepare
from qwenlab.preparation.quantize import (
    Error,
    Floats,
    Halves,
    PrecisionError,
    Words,
    from_bfloat16,
    pack,
    quantize,
    to_bfloat16,
)
from qwenlab.preparation.recipes import PARTS, excludes, mended_config
from qwenlab.preparation.tensors import TensorInfo, layout, pieces, read_header
from qwenlab.remote.checkpoint import manifest
from qwenlab.remote.checkpoint.files import FileEntry, digest_file
from qwenlab.remote.checkpoint.manifest import Manifest
from qwenlab.remote.checkpoint.status import Status
from qwenlab.remote.checkpoint.words import FetchError
from tests.lab import tiny_checkpoint

REVISION = "a" * 40


def whole(directory: Path) -> Path:
    """Give a directory the manifest that a fetch would have left."""
    files = []
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        entry = FileEntry(path.relative_to(directory).as_posix(), path.stat().st_size)
        files.append(FileEntry(entry.path, entry.size, digest_file(path, entry).sha256))
    manifest.write(directory, Manifest("lab/tiny", REVISION, tuple(files), "a test"))
    return directory


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The tiny checkpoint, its weights over four files, as a fetch leaves it."""
    return whole(tiny_checkpoint.write(tmp_path / REVISION, files=4))


@pytest.fixture
def status(tmp_path: Path) -> Status:
    """A status file."""
    return Status(tmp_path / "status.json")


def tensor(directory: Path, name: str) -> np.ndarray[Any, Any]:
    """A tensor by name, wherever it lies."""
    kinds = {"BF16": np.uint16, "I32": np.int32, "I64": np.int64}
    for path in sorted(directory.glob("*.safetensors")):
        info = read_header(path).get(name)
        if info is not None:
            data = b"".join(bytes(part) for _, part in pieces(path, info))
            return np.frombuffer(data, dtype=kinds[info.dtype]).reshape(info.shape)
    raise KeyError(name)


def unpacked(directory: Path, name: str, bits: int) -> np.ndarray[Any, Any]:
    """The weights that a packed tensor stands for, computed the plain way."""
    words = tensor(directory, f"{name}_packed").view(np.uint32)
    codes = np.stack([(words >> (bits * at)) & ((1 << bits) - 1) for at in range(32 // bits)], axis=-1)
    rows, columns = tensor(directory, f"{name}_shape")
    values = codes.reshape(rows, columns).astype(np.float32) - (1 << (bits - 1))
    return values * np.repeat(from_bfloat16(tensor(directory, f"{name}_scale")), 128, axis=1)


NAMES = {
    "lm_head.weight": "int8",
    "model.language_model.embed_tokens.weight": "int8",
    "mtp.fc.weight": "int8",
    "mtp.layers.0.self_attn.q_proj.weight": "int8",
    "mtp.layers.0.mlp.down_proj.weight": "int8",
}


def test_head_embedding_and_mtp_are_what_they_were_within_half_a_step(
    source: Path, tmp_path: Path, status: Status
) -> None:
    target = tmp_path / f"{REVISION}.int8-heads"
    assert "prepared as int8-heads: error at most 0." in prepare(source, target, "int8-heads", status)
    known = manifest.read(target)
    assert known is not None
    assert not list(manifest.wrong_files(target, known.files, digests=True))
    for name in NAMES:
        before, after = from_bfloat16(tensor(source, name)), unpacked(target, name, 8)
        difference = float(np.abs(before - after).max())
        noted = known.details["tensors"][name]
        assert difference == pytest.approx(noted["max_abs_error"])
        assert difference <= noted["bound"] <= np.abs(before).max() / 127 * 0.51
        assert noted["relative_error"] < 0.01
    fetched = manifest.read(source)
    assert fetched is not None
    assert known.details["inputs"] == {entry.path: entry.sha256 for entry in fetched.files}
    assert known.details["tool"].startswith("qwenlab ")


def test_the_index_names_every_tensor_where_it_is(source: Path, tmp_path: Path, status: Status) -> None:
    target = tmp_path / "made"
    prepare(source, target, "int8-heads", status)
    index = json.loads((target / "model.safetensors.index.json").read_text())
    for name in index["weight_map"]:
        assert name in read_header(target / index["weight_map"][name])
    before = set(json.loads((source / "model.safetensors.index.json").read_text())["weight_map"])
    gone = before - set(index["weight_map"])
    assert gone >= set(NAMES)
    assert all(f"{name}_packed" in index["weight_map"] for name in gone)
    sizes = [info.end - info.begin for path in target.glob("*.safetensors") for info in read_header(path).values()]
    assert index["metadata"]["total_size"] == sum(sizes)


def test_files_without_such_tensors_are_links_and_cost_no_disk(source: Path, tmp_path: Path, status: Status) -> None:
    target = tmp_path / "made"
    prepare(source, target, "int8-head", status)
    linked = {
        path.name for path in target.iterdir() if (source / path.name).exists() and path.samefile(source / path.name)
    }
    head = next(path.name for path in source.glob("*.safetensors") if "lm_head.weight" in read_header(path))
    assert linked == {path.name for path in source.iterdir()} - {
        head,
        "config.json",
        "model.safetensors.index.json",
        manifest.NAME,
    }


def test_other_tensors_of_a_rewritten_file_are_the_same(source: Path, tmp_path: Path, status: Status) -> None:
    target = tmp_path / "made"
    prepare(source, target, "int8-heads", status)
    for name, shape in tiny_checkpoint.tensors().items():
        if len(shape) == 1:
            assert np.array_equal(tensor(source, name), tensor(target, name)), name


def test_a_second_run_changes_nothing_and_another_source_starts_anew(
    source: Path, tmp_path: Path, status: Status
) -> None:
    target = tmp_path / "made"
    prepare(source, target, "int8-heads", status)
    before = {path.name: path.stat().st_mtime_ns for path in target.iterdir()}
    assert prepare(source, target, "int8-heads", status).endswith("is prepared as int8-heads")
    assert {path.name: path.stat().st_mtime_ns for path in target.iterdir()} == before
    tiny_checkpoint.write(tmp_path / "other", seed=1, files=4)
    other = whole(tmp_path / "other")
    prepare(other, target, "int8-heads", status)
    name = "lm_head.weight"
    assert np.abs(from_bfloat16(tensor(other, name)) - unpacked(target, name, 8)).max() < 0.001


@pytest.mark.parametrize("stop_after", [1, 2, 7, 20, 35])
def test_stopped_anywhere_it_goes_on_where_it_was_also_within_a_tensor(
    source: Path, tmp_path: Path, status: Status, monkeypatch: pytest.MonkeyPatch, stop_after: int
) -> None:
    monkeypatch.setattr(preparation, "ELEMENTS_AT_ONCE", 100 * 256)
    rows: list[int] = []
    stopping = True

    def counted(weights: Floats, bits: int, group: int, error: Error) -> tuple[Words, Halves]:
        if len(rows) == stop_after and stopping:
            raise KeyboardInterrupt
        rows.append(len(weights))
        return quantize(weights, bits, group, error)

    monkeypatch.setattr(preparation, "quantize", counted)
    target = tmp_path / "made"
    with pytest.raises(KeyboardInterrupt):
        prepare(source, target, "int8-heads", status)
    assert manifest.read(target) is None
    stopping = False
    prepare(source, target, "int8-heads", status)
    needed, rows[:] = sum(rows), []
    clean = tmp_path / "clean"
    prepare(source, clean, "int8-heads", status)
    assert needed == sum(rows), "a row was made twice"
    assert {path.name: path.read_bytes() for path in clean.iterdir() if path.name != manifest.NAME} == {
        path.name: path.read_bytes() for path in target.iterdir() if path.name != manifest.NAME
    }
    one, other = manifest.read(target), manifest.read(clean)
    assert one is not None
    assert other is not None
    assert one.details["tensors"] == other.details["tensors"]
    assert status.done == status.total


def test_what_was_made_from_a_file_that_has_changed_since_is_made_anew(
    source: Path, tmp_path: Path, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "made"
    calls = 0

    def stopped(weights: Floats, bits: int, group: int, error: Error) -> tuple[Words, Halves]:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return quantize(weights, bits, group, error)

    with monkeypatch.context() as patch:
        patch.setattr(preparation, "quantize", stopped)
        with pytest.raises(KeyboardInterrupt):
            prepare(source, target, "int8-heads", status)
    assert list(target.glob("*.errors")), "no file was made before the stop"
    tiny_checkpoint.write(tmp_path / "other", seed=1, files=4)
    other = whole(tmp_path / "other")
    prepare(other, target, "int8-heads", status)
    for name in NAMES:
        assert np.abs(from_bfloat16(tensor(other, name)) - unpacked(target, name, 8)).max() < 0.001, name


def test_nothing_to_prepare_and_unknown_recipes_are_refused(source: Path, tmp_path: Path, status: Status) -> None:
    with pytest.raises(FetchError, match="no recipe 'int3': there are int8-heads, int4-heads"):
        prepare(source, tmp_path / "x", "int3", status)
    prepare(source, tmp_path / "made", "int8-head", status)
    with pytest.raises(FetchError, match="has no 16-bit head"):
        prepare(tmp_path / "made", tmp_path / "twice", "int8-head", status)
    (source / manifest.NAME).unlink()
    with pytest.raises(FetchError, match="is not whole"):
        prepare(source, tmp_path / "x", "int8-head", status)


def test_a_weight_that_is_not_finite_is_not_written_down_as_prepared() -> None:
    weights = np.ones((1, 128), dtype=np.float32)
    weights[0, 3] = np.nan
    with pytest.raises(PrecisionError), np.errstate(invalid="ignore"):
        quantize(weights, 8, 128, Error())


@pytest.mark.parametrize("bits", [4, 8])
def test_codes_come_back_from_their_words_as_the_format_says(bits: int) -> None:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    codes = np.arange(low, high + 1, dtype=np.int8).reshape(1, -1)
    words = pack(codes, bits).view(np.uint32)
    found = [(int(words[0, at * bits // 32]) >> (at * bits % 32)) & ((1 << bits) - 1) for at in range(codes.shape[1])]
    assert found == [code - low for code in codes[0].tolist()]


@pytest.mark.parametrize(
    ("value", "bits"), [(1.0, 0x3F80), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (-0.1, 0xBDCD), (0.0, 0)]
)
def test_bfloat16_rounds_to_the_nearest_ties_to_even(value: float, bits: int) -> None:
    assert int(to_bfloat16(np.array([value], dtype=np.float32))[0]) == bits


@pytest.mark.parametrize(
    ("entry", "part", "keeps_out"),
    [
        ("lm_head", "lm_head", True),
        ("re:.*lm_head.*", "lm_head", True),
        ("re:.*mtp.*", "mtp", True),
        ("mtp.fc", "mtp", True),
        ("mtp", "mtp", True),
        ("re:.*visual.*", "mtp", False),
        ("model.language_model.embed_tokens", "embedding", True),
        ("model.layers.0.linear_attn.in_proj_a", "mtp", False),
    ],
)
def test_entries_that_would_keep_a_part_out_are_found(entry: str, part: str, keeps_out: bool) -> None:
    assert excludes(entry, PARTS[part]) is keeps_out


def test_the_config_gets_a_group_per_part_and_keeps_the_others() -> None:
    base = {"targets": ["Linear"], "weights": {"num_bits": 4}}
    config = {
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": base},
            "ignore": ["lm_head", "re:.*mtp.*", "re:.*visual.*"],
        }
    }
    made = mended_config(config, {"lm_head": 8, "mtp": 4}, ["mtp.fc"])["quantization_config"]
    assert made["config_groups"]["group_0"] == base
    assert [group["weights"]["num_bits"] for group in made["config_groups"].values()] == [4, 8, 4]
    assert made["ignore"] == ["re:.*visual.*", "mtp.fc"]
    assert config["quantization_config"]["ignore"] == ["lm_head", "re:.*mtp.*", "re:.*visual.*"]
    with pytest.raises(ValueError, match="quantized by 'fp8' cannot be prepared"):
        mended_config({"quantization_config": {"quant_method": "fp8"}}, {"lm_head": 8}, [])


PEAK = """
import resource, sys
from pathlib import Path
from qwenlab.preparation.prepare import prepare
from qwenlab.remote.checkpoint.status import Status
import numpy
floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
prepare(Path(sys.argv[1]), Path(sys.argv[2]), "int8-head", Status(Path(sys.argv[3])))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - floor)
"""


def test_memory_does_not_grow_with_the_tensor(tmp_path: Path) -> None:
    """256 MiB of bfloat16 weights; what is used beyond the interpreter is bounded by the pieces, not by the tensor."""
    directory = tmp_path / "big"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    rows, columns = 26_214, 5120
    header, places, size = layout([TensorInfo("lm_head.weight", "BF16", (rows, columns))])
    row = to_bfloat16(np.linspace(-1, 1, columns, dtype=np.float32)).tobytes()
    with (directory / "model.safetensors").open("wb") as handle:
        handle.write(header)
        for _ in range(rows):
            handle.write(row)
    assert (directory / "model.safetensors").stat().st_size == size == places["lm_head.weight"].end
    whole(directory)
    command = [sys.executable, "-c", PEAK, str(directory), str(tmp_path / "made"), str(tmp_path / "status.json")]
    limit = 3 << 30

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    done = subprocess.run(command, text=True, capture_output=True, check=True, preexec_fn=bounded)
    kib = int(done.stdout.splitlines()[-1])
    assert kib < 250 * 1024, f"{kib / 1024:.0f} MiB beyond the interpreter"

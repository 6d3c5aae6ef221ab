"""What preparing a checkpoint of full size costs:  python -m bench.preparation [--recipe int8-heads] [--kills 4]

Head, embedding and MTP module have their full shapes (random weights, 5.5 GiB in bfloat16 for the 27B); the layers,
which a preparation only links, are one small file. Needs 13 GiB below --folder. Figures:

* peak resident memory of the preparation, against the bound of 6 GiB;
* seconds, over those of copying the files that it reads and syncing the copy;
* killed with SIGKILL at random points: bytes written in all runs over those of one run, and whether the result is,
  digest by digest, the one that an undisturbed run leaves.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from qwenlab.planner.geometry import ModelGeometry, models
from qwenlab.preparation.quantize import to_bfloat16
from qwenlab.preparation.recipes import RECIPES
from qwenlab.preparation.tensors import TensorInfo, layout
from qwenlab.remote.checkpoint import manifest
from qwenlab.remote.checkpoint.files import FileEntry, digest_file
from qwenlab.remote.checkpoint.manifest import Manifest

ROOT = Path(__file__).resolve().parents[1]
MODEL = "qwen3.8-27b"
PEAK_BOUND_GIB = 6.0
WRITTEN_BOUND = 1.3  # bytes written over those of one run, however often it was killed
LINKED = "model-00004-of-00004.safetensors"
PROGRAM = """
import sys
from pathlib import Path
from qwenlab.preparation.prepare import prepare
from qwenlab.remote.checkpoint.status import Status
print(prepare(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Status(Path(sys.argv[4]))))
"""


def shards(model: ModelGeometry) -> dict[str, dict[str, tuple[int, ...]]]:
    """Files of the checkpoint: tensor names and shapes."""
    hidden, heads = model.hidden_size, model.attention
    query, key = heads.query_heads * heads.head_dim, heads.kv_heads * heads.head_dim
    layer = {
        "self_attn.q_proj": (query * (2 if heads.output_gate else 1), hidden),
        "self_attn.k_proj": (key, hidden),
        "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query),
        "mlp.gate_proj": (model.intermediate_size, hidden),
        "mlp.up_proj": (model.intermediate_size, hidden),
        "mlp.down_proj": (hidden, model.intermediate_size),
        "input_layernorm": (hidden,),
    }
    return {
        "model-00001-of-00004.safetensors": {"model.language_model.embed_tokens.weight": (model.vocab_size, hidden)},
        "model-00002-of-00004.safetensors": {
            "mtp.fc.weight": (hidden, 2 * hidden),
            **{f"mtp.layers.0.{name}.weight": shape for name, shape in layer.items()},
        },
        "model-00003-of-00004.safetensors": {"lm_head.weight": (model.vocab_size, hidden)},
        LINKED: {"model.language_model.layers.0.mlp.down_proj.weight": (hidden, model.intermediate_size)},
    }


def write_source(folder: Path, model: ModelGeometry) -> int:
    """Write the checkpoint with its manifest; returns the bytes of the files that a preparation reads."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    # one block of random weights over and over: how long quantizing takes does not depend on them
    block = to_bfloat16(np.random.default_rng(1).normal(0, 0.02, 16 << 20).astype(np.float32)).tobytes()
    weight_map: dict[str, str] = {}
    read = 0
    for name, tensors in shards(model).items():
        header, _, size = layout([TensorInfo(tensor, "BF16", shape) for tensor, shape in tensors.items()])
        with (folder / name).open("wb") as handle:
            handle.write(header)
            for shape in tensors.values():
                left = 2 * math.prod(shape)
                while left:
                    left -= handle.write(block[:left])
        assert (folder / name).stat().st_size == size
        weight_map |= dict.fromkeys(tensors, name)
        read += size if name != LINKED else 0
    index = {"metadata": {"total_size": read}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    files = []
    for path in sorted(folder.iterdir()):
        entry = FileEntry(path.name, path.stat().st_size)
        files.append(FileEntry(entry.path, entry.size, digest_file(path, entry).sha256))
    manifest.write(folder, Manifest("bench/model", "b" * 40, tuple(files), "a bench"))
    return read


@dataclass(frozen=True)
class Run:
    """One process of the preparation: exit code, seconds, bytes it wrote, peak resident memory in GiB."""

    code: int
    seconds: float
    written: int
    peak_gib: float


def run(source: Path, target: Path, recipe: str, *, kill_after: int | None = None) -> Run:
    """Prepare in a process of its own; killed once it has written `kill_after` bytes."""
    status = target.with_name("status.json")
    begin = time.perf_counter()
    command = [sys.executable, "-c", PROGRAM, str(source), str(target), recipe, str(status)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    written = 0
    # watched, not timed: WNOWAIT leaves the ended process readable below /proc until wait4 collects it
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        written = max(written, _written(process.pid))
        if kill_after is not None and written >= kill_after:
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.02)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    written = max(written, _written(process.pid))
    _, code, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    return Run(process.returncode, time.perf_counter() - begin, written, used.ru_maxrss / 2**20)


def _written(pid: int) -> int:
    """Bytes that a process has handed to write(2) and its like so far."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return 0


def digests(target: Path) -> Mapping[str, str | None]:
    """What the manifest of a prepared checkpoint says of its files."""
    known = manifest.read(target)
    if known is None:
        raise SystemExit(f"{target} has no manifest: the preparation did not end")
    return {entry.path: entry.sha256 for entry in known.files}


def copying(source: Path, folder: Path) -> float:
    """Seconds to copy the files that a preparation reads, synced."""
    folder.mkdir()
    begin = time.perf_counter()
    for path in source.glob("*.safetensors"):
        if path.name != LINKED:
            shutil.copyfile(path, folder / path.name)
            with (folder / path.name).open("rb") as handle:
                os.fsync(handle.fileno())
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder)
    return seconds


def main() -> int:
    """Run and print; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", choices=sorted(RECIPES), default="int8-heads")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where to work (default: the temporary folder)")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="qwenlab-bench-", dir=options.folder) as name:
        root = Path(name)
        source = root / "source"
        read = write_source(source, models()[MODEL])
        plain = copying(source, root / "copy")
        whole = run(source, root / "made", options.recipe)
        expected = digests(root / "made")
        shutil.rmtree(root / "made")
        print(f"{options.recipe}: {read / 2**30:.2f} GiB read, {whole.written / 2**30:.2f} GiB written")
        print(f"seconds {whole.seconds:.1f}, over a copy's {plain:.1f}: {whole.seconds / plain:.1f}")
        runs = []
        for _ in range(options.kills):
            runs.append(run(source, root / "made", options.recipe, kill_after=draw.randrange(whole.written // 2)))
            print(f"killed after {runs[-1].written / 2**30:.2f} GiB written: exit code {runs[-1].code}")
        runs.append(run(source, root / "made", options.recipe))
        same = digests(root / "made") == expected
    peak = max(one.peak_gib for one in (whole, *runs))
    ratio = sum(one.written for one in runs) / whole.written
    print(f"peak resident memory: {peak:.2f} GiB (below {PEAK_BOUND_GIB:g})")
    print(f"written in {len(runs)} runs over one run: {ratio:.2f} (below {WRITTEN_BOUND:g}); the same files: {same}")
    good = same and peak < PEAK_BOUND_GIB and ratio < WRITTEN_BOUND and whole.code == runs[-1].code == 0
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

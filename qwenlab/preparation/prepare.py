"""A checkpoint whose head, embedding or MTP module is requantised, in a directory of its own.

Shards without such tensors are hard links to the source. The others are written anew, tensor by tensor, and taken up
again where a run was stopped. The manifest comes last and names inputs, tool and each tensor's error.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from qwenlab import __version__
from qwenlab.preparation.quantize import Error, Floats, from_bfloat16, quantize
from qwenlab.preparation.recipes import GROUP, RECIPES, mended_config, part_of
from qwenlab.preparation.tensors import ITEM_BYTES, ShardWriter, TensorInfo, layout, pieces, read_header
from qwenlab.remote.checkpoint import manifest
from qwenlab.remote.checkpoint.files import FileEntry, digest_file
from qwenlab.remote.checkpoint.manifest import Manifest
from qwenlab.remote.checkpoint.status import Status
from qwenlab.remote.checkpoint.words import FetchError

ELEMENTS_AT_ONCE = 4 << 20  # weights; float32 copies of them are the peak of memory, about 150 MB
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"


def prepare(source: Path, target: Path, recipe: str, status: Status) -> str:
    """Make `target` from the whole checkpoint in `source`; returns words.

    Raises:
        FetchError: an unknown recipe, nothing to requantise, a damaged source, or no room.
        PrecisionError: a tensor came out further off than rounding explains.
    """
    if recipe not in RECIPES:
        raise FetchError(f"no recipe {recipe!r}: there are {', '.join(RECIPES)}.")
    known, made = manifest.read(source), manifest.read(target)
    if known is None:
        raise FetchError(f"{source} is not whole: nothing to prepare from.")
    inputs = {entry.path: entry.sha256 for entry in known.files}
    if made is not None and made.details.get("inputs") == inputs and made.details.get("recipe") == recipe:
        wrong = list(manifest.wrong_files(target, made.files, digests=False))
        if not wrong:
            return f"{known.repo}@{known.revision[:12]} is prepared as {recipe}"
    manifest.withdraw(target)
    return _Preparation(source, target, recipe, known, status).run()


class _Preparation:
    def __init__(self, source: Path, target: Path, recipe: str, known: Manifest, status: Status) -> None:
        self.source, self.target, self.recipe, self.known, self.status = source, target, recipe, known, status
        self.bits = RECIPES[recipe]
        self.names = [entry.path for entry in known.files]
        self.shards = [name for name in self.names if name.endswith(".safetensors")]

    def run(self) -> str:
        self.target.mkdir(parents=True, exist_ok=True)
        try:
            headers = {name: read_header(self.source / name) for name in self.shards}
        except ValueError as error:
            raise FetchError(f"its source is damaged: {error}; deploy with qwen_verify_models = 'digest'.") from error
        changed = {name for name, tensors in headers.items() if any(self._part(one) for one in tensors.values())}
        if not changed:
            raise FetchError(f"{self.recipe}: {self.known.repo} has no 16-bit head, embedding or MTP module.")
        plans = {name: self._plan(headers[name]) for name in sorted(changed)}
        sizes = {name: layout(plan)[2] for name, plan in plans.items()}
        self._check_room(sum(sizes.values()))
        self.status.say("preparing", f"{self.recipe}: {len(changed)} of {len(headers)} files are written anew")
        self.status.expect(sum(one.size for plan in plans.values() for one in plan))
        errors: dict[str, Any] = {}
        for name, plan in plans.items():
            errors |= self._shard(name, headers[name], plan)
        documents = self._write_documents(headers, plans)
        files = [self._file(entry, entry.path in changed or entry.path in documents) for entry in self.known.files]
        details = {
            "tool": f"qwenlab {__version__}",
            "recipe": self.recipe,
            "inputs": {entry.path: entry.sha256 for entry in self.known.files},
            "tensors": errors,
        }
        made = Manifest(self.known.repo, self.known.revision, tuple(files), f"prepared from {self.source}", details)
        manifest.write(self.target, made)
        worst = max(error["relative_error"] for error in errors.values())
        return f"{self.known.repo}@{self.known.revision[:12]} is prepared as {self.recipe}: error at most {worst:.2%}"

    def _write_documents(
        self, headers: dict[str, dict[str, TensorInfo]], plans: dict[str, list[TensorInfo]]
    ) -> frozenset[str]:
        """config.json and, where the source has one, the index of tensors; their names."""
        documents = {CONFIG: self._config(headers)}
        if INDEX in self.names:
            documents[INDEX] = self._index(headers, plans)
        for name, document in documents.items():
            fresh = self.target / f"{name}.new"
            fresh.write_text(json.dumps(document, indent=2) + "\n")
            fresh.replace(self.target / name)
        return frozenset(documents)

    def _index(self, headers: dict[str, dict[str, TensorInfo]], plans: dict[str, list[TensorInfo]]) -> dict[str, Any]:
        total = sum(sum(one.end - one.begin for one in read_header(self._made(name)).values()) for name in self.shards)
        weight_map = {
            tensor: name
            for name in self.shards
            for tensor in ([one.name for one in plans[name]] if name in plans else headers[name])
        }
        return {"metadata": {"total_size": total}, "weight_map": weight_map}

    def _made(self, name: str) -> Path:
        made = self.target / name
        return made if made.exists() else self.source / name

    def _part(self, tensor: TensorInfo) -> int:
        """Bits to which a tensor is requantised; 0 when it stays as it is."""
        part = part_of(tensor.name, self.recipe)
        wide = tensor.dtype in ("BF16", "F16", "F32") and len(tensor.shape) == 2
        return self.bits[part.name] if part is not None and wide and tensor.shape[1] % GROUP == 0 else 0

    def _plan(self, tensors: dict[str, TensorInfo]) -> list[TensorInfo]:
        """The tensors of the new file."""
        planned = []
        for tensor in tensors.values():
            if bits := self._part(tensor):
                rows, columns = tensor.shape
                planned += [
                    TensorInfo(f"{tensor.name}_packed", "I32", (rows, columns * bits // 32)),
                    TensorInfo(f"{tensor.name}_scale", "BF16", (rows, columns // GROUP)),
                    TensorInfo(f"{tensor.name}_shape", "I64", (2,)),
                ]
            else:
                planned.append(tensor)
        return planned

    def _check_room(self, need: int) -> None:
        free = shutil.disk_usage(self.target).free
        for partial in self.target.glob("*.partial"):
            need -= partial.stat().st_blocks * 512
        if free < need + (64 << 20):
            raise FetchError(
                f"the disk below {self.target.parent} is full or will be: the preparation needs {need / 2**30:.2f} GiB "
                f"and {free / 2**30:.2f} are free; free room (plays/prune.py shows what no plan uses)."
            )

    def _shard(self, name: str, tensors: dict[str, TensorInfo], plan: list[TensorInfo]) -> dict[str, Any]:
        """Write one file anew; returns the errors of its requantised tensors."""
        final = self.target / name
        notes = final.with_name(f"{name}.errors")
        origin = next(entry.sha256 or "" for entry in self.known.files if entry.path == name)
        if final.exists() and notes.exists():
            loaded: dict[str, Any] = json.loads(notes.read_text())
            if loaded.get("origin") == origin:
                self.status.add(sum(one.size for one in plan))
                return dict(loaded["errors"])
        with ShardWriter(final, plan, origin) as writer:
            for tensor in tensors.values():
                if self._part(tensor):
                    self._quantize(writer, name, tensor)
                else:
                    self._copy(writer, name, tensor)
            errors = {key: note for key, note in writer.done.items() if note}
            # before the file gets its name: a named file always has them
            notes.write_text(json.dumps({"origin": origin, "errors": errors}))
        return errors

    def _copy(self, writer: ShardWriter, name: str, tensor: TensorInfo) -> None:
        if tensor.name not in writer.done:
            for offset, data in pieces(self.source / name, tensor):
                writer.write(tensor.name, offset, data)
            writer.note(tensor.name, {})
        self.status.add(tensor.size)

    def _quantize(self, writer: ShardWriter, name: str, tensor: TensorInfo) -> None:
        """Requantise a tensor from the row that was reached."""
        bits = self._part(tensor)
        rows, columns = tensor.shape
        row_bytes = {"packed": columns * bits // 8, "scale": columns // GROUP * 2}
        known = writer.done.get(tensor.name, {})
        row, error = known.get("rows", 0), Error(**known.get("error", {}))
        if "bits" in known:
            row = rows
        self.status.add(row * sum(row_bytes.values()))
        rest = replace(tensor, begin=tensor.begin + row * columns * ITEM_BYTES[tensor.dtype])
        at_once = max(1, ELEMENTS_AT_ONCE // columns)
        for _, data in pieces(self.source / name, rest, at_once * columns * ITEM_BYTES[tensor.dtype]):
            words, scales = quantize(_floats(data, tensor.dtype).reshape(-1, columns), bits, GROUP, error)
            writer.write(f"{tensor.name}_packed", row * row_bytes["packed"], words.data.cast("B"))
            writer.write(f"{tensor.name}_scale", row * row_bytes["scale"], scales.data.cast("B"))
            row += len(words)
            writer.note(tensor.name, {"rows": row, "error": asdict(error)})
            self.status.add(words.nbytes + scales.nbytes)
        if "bits" not in known:
            writer.write(f"{tensor.name}_shape", 0, np.array([rows, columns], dtype=np.int64).data.cast("B"))
            writer.note(tensor.name, {"bits": bits, "group": GROUP, **error.to_dict()})
        self.status.add(writer.places[f"{tensor.name}_shape"].size)

    def _config(self, headers: dict[str, dict[str, TensorInfo]]) -> dict[str, Any]:
        every = [tensor for tensors in headers.values() for tensor in tensors.values()]
        parts: dict[str, int] = {}
        kept = []
        for tensor in every:
            part = part_of(tensor.name, self.recipe)
            if part is not None and self._part(tensor):
                parts[part.name] = self.bits[part.name]
            elif part is not None:
                kept.append(tensor.name.removesuffix(".weight"))
        ordered = {name: parts[name] for name in self.bits if name in parts}
        try:
            return mended_config(json.loads((self.source / CONFIG).read_text()), ordered, kept)
        except ValueError as error:
            raise FetchError(f"{error}.") from error

    def _file(self, entry: FileEntry, changed: bool) -> FileEntry:
        """A file's entry: linked from the source, or digested anew."""
        path = self.target / entry.path
        if not changed:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f"{path.name}.linked")
            with suppress(FileNotFoundError):
                fresh.unlink()
            os.link(self.source / entry.path, fresh)
            os.replace(fresh, path)
            if fresh.exists():  # rename(2) of two links to one file does nothing
                fresh.unlink()
            return entry
        size = path.stat().st_size
        digests = digest_file(path, FileEntry(entry.path, size))
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}.errors").unlink()
        return FileEntry(entry.path, size, digests.sha256)


def _floats(data: memoryview, dtype: str) -> Floats:
    if dtype == "BF16":
        return from_bfloat16(np.frombuffer(data, dtype=np.uint16))
    return np.frombuffer(data, dtype=np.float16 if dtype == "F16" else np.float32).astype(np.float32)

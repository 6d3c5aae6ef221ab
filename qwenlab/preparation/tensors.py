"""safetensors files, read and written piece by piece: a tensor is never in memory as a whole.

Format: 8 bytes little-endian header length, a JSON header of name -> dtype, shape, data_offsets, then the data
(huggingface/safetensors README, "Format").
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

ITEM_BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "F8_E4M3": 1, "U8": 1, "I8": 1, "BOOL": 1}
METADATA = "__metadata__"
LONGEST_HEADER = 100 << 20  # bytes, the format's own limit
COPY_BYTES = 8 << 20
SYNC_BYTES = 64 << 20  # what a crash may cost


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a file: `begin` and `end` are offsets into the file, in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int = 0
    end: int = 0

    @property
    def size(self) -> int:
        """Bytes of its content."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of a file in the order of their data.

    Raises:
        ValueError: it is no safetensors file, or it ends before its data does.
    """
    with path.open("rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        start = handle.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else LONGEST_HEADER + 1
        if length > min(LONGEST_HEADER, size):
            raise ValueError(f"{path} is no safetensors file")
        header: dict[str, Any] = json.loads(handle.read(length))
    header.pop(METADATA, None)
    found = []
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if end > size:
            raise ValueError(f"{path} ends inside of {name}")
        found.append(TensorInfo(name, entry["dtype"], tuple(entry["shape"]), begin, end))
    return {tensor.name: tensor for tensor in sorted(found, key=lambda tensor: tensor.begin)}


def layout(tensors: list[TensorInfo]) -> tuple[bytes, dict[str, TensorInfo], int]:
    """Header bytes, place of each tensor, and size of the file that holds these tensors in this order."""
    header: dict[str, Any] = {METADATA: {"format": "pt"}}
    offset = 0
    for tensor in tensors:
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.size],
        }
        offset += tensor.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    base = 8 + len(text)
    placed = {
        tensor.name: TensorInfo(
            tensor.name, tensor.dtype, tensor.shape, *(base + at for at in header[tensor.name]["data_offsets"])
        )
        for tensor in tensors
    }
    return struct.pack("<Q", len(text)) + text, placed, base + offset


class ShardWriter:
    """A file that is filled tensor by tensor and can be taken up again after a crash, also within a tensor.

    It grows at `<name>.partial`; `<name>.progress` lists what is on disk for sure: each line a tensor, what its maker
    noted about it last, and what it was made from (`origin`; what came from elsewhere is written anew).
    """

    def __init__(self, path: Path, tensors: list[TensorInfo], origin: str = "") -> None:
        self._path, self._origin = path, origin
        self._partial = path.with_name(f"{path.name}.partial")
        self._progress = path.with_name(f"{path.name}.progress")
        self._header, self.places, self._size = layout(tensors)
        self._waiting: dict[str, dict[str, Any]] = {}
        self._unsynced = 0
        self.done: dict[str, dict[str, Any]] = {}

    def __enter__(self) -> ShardWriter:
        self._file = os.open(self._partial, os.O_RDWR | os.O_CREAT, 0o644)
        same = os.pread(self._file, len(self._header), 0) == self._header
        if same and os.fstat(self._file).st_size == self._size and self._progress.exists():
            for line in self._progress.read_text().splitlines():
                try:
                    note = json.loads(line)
                    if note["origin"] == self._origin:
                        self.done[note["tensor"]] = note["note"]
                except (ValueError, KeyError):
                    break  # cut off by the crash
        self._progress.write_text("".join(self._line(name, note) for name, note in self.done.items()))
        os.ftruncate(self._file, self._size)
        os.pwrite(self._file, self._header, 0)
        return self

    def write(self, name: str, offset: int, data: memoryview) -> None:
        """Write a part of a tensor, `offset` bytes from its begin. Raises ValueError beyond its end."""
        place = self.places[name]
        if place.begin + offset + len(data) > place.end:
            raise ValueError(f"{name} has {place.end - place.begin} bytes")
        at = place.begin + offset
        while data:
            count = os.pwrite(self._file, data, at)
            data, at = data[count:], at + count
            self._unsynced += count

    def note(self, key: str, note: dict[str, Any]) -> None:
        """So much of a tensor (or of the parts that replace it) is written; it is noted once it is on disk."""
        self._waiting[key] = self.done[key] = note
        if self._unsynced > SYNC_BYTES:
            self._sync()

    def _sync(self) -> None:
        os.fsync(self._file)
        with self._progress.open("a") as handle:
            for key, note in self._waiting.items():
                handle.write(self._line(key, note))
        self._waiting.clear()
        self._unsynced = 0

    def _line(self, name: str, note: dict[str, Any]) -> str:
        return json.dumps({"tensor": name, "note": note, "origin": self._origin}) + "\n"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._sync()
        finally:
            os.close(self._file)
        if error is None:
            self._partial.rename(self._path)
            self._progress.unlink()


def pieces(path: Path, tensor: TensorInfo, size: int = COPY_BYTES) -> Iterator[tuple[int, memoryview]]:
    """Offset within the tensor and content, piece by piece."""
    with path.open("rb", buffering=0) as handle:
        handle.seek(tensor.begin)
        offset, length = 0, tensor.end - tensor.begin
        while offset < length:
            data = handle.read(min(size, length - offset))
            if not data:
                raise ValueError(f"{path} ends inside of {tensor.name}")
            yield offset, memoryview(data)
            offset += len(data)

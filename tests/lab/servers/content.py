"""The content of files on its way out of the hub, spoilt, slowed down or cut off as a fault says."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from tests.lab.servers import xet
from tests.lab.servers.faults import Fault, Where
from tests.lab.servers.http import ByteRange, Handler

_CHUNK = 64 << 10


@dataclass
class Request:
    """A request that the hub has answered.

    Attributes:
        where: part of the hub that was asked.
        method: GET or HEAD.
        path: as requested, without query.
        file: path in the repository, when the request names a file.
        status: as answered.
        sent: bytes of the file that went out.
        range: the `Range` header.
        authorized: whether a known token came with it.
    """

    where: Where
    method: str
    path: str
    file: str | None
    status: int = 0
    sent: int = 0
    range: str | None = None
    authorized: bool = False


def send_content(
    handler: Handler, request: Request, fault: Fault, source: Path, size: int, first: int, end: int
) -> None:
    """Send bytes `first` to `end` of a file of `size` bytes, with what the fault does to them."""
    position = first
    began = time.monotonic()
    with source.open("rb") as handle:
        handle.seek(first)
        while position < end:
            wanted = min(_CHUNK, end - position)
            if fault.reset_at is not None and position <= fault.reset_at:
                wanted = min(wanted, fault.reset_at - position)
                if wanted == 0:
                    handler.break_connection(orderly=fault.orderly)
                    return
            chunk = handle.read(wanted)
            request.sent += len(chunk)  # before the client can have it, and ask how much was sent
            handler.wfile.write(_with_wrong_bit(chunk, position, size) if fault.corrupt else chunk)
            position += len(chunk)
            _slow_down(fault, began, request.sent)


def send_xorb(handler: Handler, request: Request, fault: Fault, xorb: xet.Xorb, part: ByteRange) -> None:
    """Send a part of what Xet storage holds of a file."""
    request.status = 206
    handler.send_response(206)
    handler.send_header("Content-Length", str(part.length))
    handler.send_header("Content-Range", part.header())
    handler.end_headers()
    began = time.monotonic()
    for position, piece in xorb.read(part):
        if fault.reset_at is not None and position >= fault.reset_at:
            handler.break_connection(orderly=fault.orderly)
            return
        wrong = _with_wrong_bit(piece, position, xorb.entry.size) if fault.corrupt else piece
        request.sent += len(piece)
        handler.wfile.write(wrong)
        _slow_down(fault, began, request.sent)


def _slow_down(fault: Fault, began: float, sent: int) -> None:
    if fault.bytes_per_second:
        time.sleep(max(0.0, began + sent / fault.bytes_per_second - time.monotonic()))


def _with_wrong_bit(chunk: bytes, position: int, size: int) -> bytes:
    middle = size // 2 - position
    if not 0 <= middle < len(chunk):
        return chunk
    return chunk[:middle] + bytes([chunk[middle] ^ 1]) + chunk[middle + 1 :]

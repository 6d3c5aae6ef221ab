"""Xet storage beside the hub: the part of the content-addressed storage's HTTP API that downloads use.

As Hugging Face's Xet protocol specification 1.1 describes it (api, xorb, download protocol) and hf-xet 1.8 asks for it:
`/v1/reconstructions/<file>` names terms (ranges of chunks of a xorb) and the URL ranges that hold them. Chunks are
stored as they are, 64 KiB each; a xorb holds a fixed share of one file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.lab.servers.http import ByteRange, parse_range
from tests.lab.servers.repository import RepositoryFile

CHUNK = 64 << 10  # bytes of content
HEADER = 8  # bytes before each stored chunk
CHUNKS = 16  # in a xorb
XORB = CHUNK * CHUNKS  # bytes of content in a xorb


def xet_hash(entry: RepositoryFile) -> str:
    """The file's name in the storage: any 64 hexadecimal digits, for clients take the storage's word."""
    return entry.sha256[::-1]


def xorb_hash(entry: RepositoryFile, number: int) -> str:
    """The name of one of its xorbs: the last digits are its number."""
    return f"{entry.sha256[:56]}{number:08x}"


def stored(position: int) -> int:
    """Where in a xorb the chunk is stored that begins at a position of the xorb's content."""
    return position // CHUNK * (CHUNK + HEADER)


def reconstruction(entry: RepositoryFile, part: ByteRange, url: str) -> dict[str, object]:
    """The answer for a byte range of a file: whole chunks around it, and how far into the first one it begins."""
    terms, fetch_info = [], {}
    for number in range(part.first // XORB, part.last // XORB + 1):
        begin, end = number * XORB, min((number + 1) * XORB, entry.size)
        first = (max(part.first, begin) - begin) // CHUNK
        last = (min(part.last + 1, end) - begin + CHUNK - 1) // CHUNK
        length = min(begin + last * CHUNK, end) - (begin + first * CHUNK)
        chunks = {"start": first, "end": last}
        name = xorb_hash(entry, number)
        terms.append({"hash": name, "unpacked_length": length, "range": chunks})
        url_range = {"start": first * (CHUNK + HEADER), "end": first * (CHUNK + HEADER) + stored_size(length) - 1}
        fetch_info[name] = [{"range": chunks, "url": f"{url}/xorbs/{name}", "url_range": url_range}]
    return {"offset_into_first_range": part.first % CHUNK, "terms": terms, "fetch_info": fetch_info}


def stored_size(length: int) -> int:
    """Bytes that so much content takes when it begins with a chunk."""
    return length + (length + CHUNK - 1) // CHUNK * HEADER


@dataclass(frozen=True)
class Xorb:
    """One xorb of a file as it is stored."""

    entry: RepositoryFile
    number: int

    @property
    def size(self) -> int:
        """Bytes as stored."""
        return stored_size(min(XORB, self.entry.size - self.number * XORB))

    def read(self, part: ByteRange) -> Iterator[tuple[int, bytes]]:
        """The stored bytes of a range, chunk by chunk, each with the place in the file where its content begins."""
        with self.entry.source.open("rb") as handle:
            for at in range(part.first // (CHUNK + HEADER), part.last // (CHUNK + HEADER) + 1):
                position = self.number * XORB + at * CHUNK
                handle.seek(position)
                content = handle.read(min(CHUNK, self.entry.size - position))
                # version, compressed size (24 bits), compression (0: none), size (24 bits)
                sizes = struct.pack("<I", len(content))[:3]
                whole = b"\0" + sizes + b"\0" + sizes + content
                begin = at * (CHUNK + HEADER)
                yield position, whole[max(part.first - begin, 0) : part.last + 1 - begin]


def whole_or_part(header: str | None, size: int) -> ByteRange:
    """The range asked for, all of it without one. Raises RangeNotSatisfiable."""
    return parse_range(header, size) or ByteRange(0, size - 1, size)

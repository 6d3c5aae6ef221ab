"""Fetches a repository's signing key and keeps it only if it is the one expected. Standard library only.

    python3 - '{"url": ..., "fingerprint": ..., "path": ...}' < fetch_key.py

The file may be armoured or binary, and must hold one primary key: apt trusts every key of a keyring.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator

PUBLIC_KEY = 6
LIMIT = 1 << 20


def dearmour(data: bytes) -> bytes:
    """Binary packets from either form."""
    if not data.lstrip().startswith(b"-----BEGIN PGP PUBLIC KEY BLOCK-----"):
        return data
    found = b""
    for block in re.findall(rb"-----BEGIN PGP PUBLIC KEY BLOCK-----(.*?)-----END", data, re.DOTALL):
        lines = [line.strip() for line in block.splitlines()]
        body = lines[lines.index(b"", 1) + 1 :] if b"" in lines[1:] else lines
        found += base64.b64decode(b"".join(line for line in body if line and not line.startswith(b"=")))
    return found


def packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and body of each OpenPGP packet (RFC 9580, 4.2)."""
    place = 0
    while place < len(data):
        head = data[place]
        if not head & 0x80:
            raise ValueError("not an OpenPGP key")
        place += 1
        if head & 0x40:
            tag, first = head & 0x3F, data[place]
            if first < 192:
                length, place = first, place + 1
            elif first < 224:
                length, place = ((first - 192) << 8) + data[place + 1] + 192, place + 2
            elif first == 255:
                length, place = int.from_bytes(data[place + 1 : place + 5], "big"), place + 5
            else:
                raise ValueError("partial packet in a key")
        else:
            tag, size = (head >> 2) & 0x0F, (1, 2, 4, 0)[head & 3]
            if not size:
                raise ValueError("packet without a length in a key")
            length, place = int.from_bytes(data[place : place + size], "big"), place + size
        if place + length > len(data):
            raise ValueError("the key is cut off")
        yield tag, data[place : place + length]
        place += length


def fingerprints(data: bytes) -> list[str]:
    """Version 4 fingerprints of the primary keys."""
    return [
        hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
        for tag, body in packets(data)
        if tag == PUBLIC_KEY
    ]


def main() -> None:
    """Fetch, check, and put in place under its own name."""
    job = json.loads(sys.argv[1])
    try:
        with urllib.request.urlopen(job["url"], timeout=60) as answer:
            data = dearmour(answer.read(LIMIT))
        found = fingerprints(data)
    except (OSError, ValueError, IndexError, binascii.Error) as error:
        sys.exit("{}: {}; check qwen_driver_repository".format(job["url"], error))
    if found != [job["fingerprint"].upper()]:
        sys.exit(
            "{} holds key {}, expected is {}: the mirror is not NVIDIA's, or the key was renewed "
            "(qwen_driver_key_fingerprint)".format(job["url"], ", ".join(found) or "none", job["fingerprint"].upper())
        )
    fresh = job["path"] + ".new"
    with open(fresh, "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o644)
    os.replace(fresh, job["path"])


if __name__ == "__main__":
    main()

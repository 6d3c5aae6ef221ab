"""fetch_uv.py < JOB: put the pinned uv at its place.

The wheel of uv carries the binary. It is taken from a folder of wheels or from the package index, its sha256 is
checked before anything of it is used, and the binary is renamed into place. JSON job on stdin: file, sha256, version,
index (or null), folder (or null), target.
"""

from __future__ import annotations

import base64
import hashlib
import html.parser
import io
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path
from typing import Any


class Links(html.parser.HTMLParser):
    """The addresses on a page of a simple index (PEP 503), by file name."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect `<a href>`; the fragment is the digest, which the job gives from a better source."""
        href = dict(attrs).get("href") if tag == "a" else None
        if href:
            address = urllib.parse.urldefrag(urllib.parse.urljoin(self.base, href))[0]
            self.found[urllib.parse.unquote(address.rsplit("/", 1)[-1])] = address


def main() -> int:
    """Fetch, check, place."""
    job: dict[str, Any] = json.load(sys.stdin)
    try:
        wheel = fetch(job)
    except (OSError, ValueError) as error:
        where = f"the package index {hide(job['index'])}" if job["index"] else f"the folder {job['folder']}"
        print(
            f"uv {job['version']} could not be had from {where}: {error}. Check qwen_index_url, qwen_wheel_directory, "
            "qwen_https_proxy and qwen_extra_ca_certificates, then deploy again.",
            file=sys.stderr,
        )
        return 1
    digest = hashlib.sha256(wheel).hexdigest()
    if digest != job["sha256"]:
        print(
            f"{job['file']} has sha256 {digest}, pinned is {job['sha256']}: the index or a proxy serves another file. "
            "Nothing was changed.",
            file=sys.stderr,
        )
        return 1
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        binary = archive.read(f"uv-{job['version']}.data/scripts/uv")
    target = Path(job["target"])
    fresh = target.with_name(f".{target.name}.new")
    try:
        fresh.write_bytes(binary)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        print(f"{target} could not be written: {error}", file=sys.stderr)
        return 1
    fresh.chmod(0o755)
    os.replace(fresh, target)
    return 0


def fetch(job: dict[str, Any]) -> bytes:
    """The wheel, from the folder when it lies there, else from the index."""
    if job["folder"] and (path := Path(job["folder"], job["file"])).is_file():
        return path.read_bytes()
    if not job["index"]:
        raise ValueError(f"there is no {job['file']}")
    page = f"{job['index'].rstrip('/')}/uv/"
    with opened(page) as response:
        links = Links(page)  # with its credentials, which files on the same server want too
        links.feed(response.read().decode())
    if job["file"] not in links.found:
        raise ValueError(f"its page lists no {job['file']}")
    with opened(links.found[job["file"]]) as response:
        content: bytes = response.read()
        return content


def opened(url: str) -> Any:
    """urlopen with the credentials of the address, if it carries any, as a header."""
    parts = urllib.parse.urlsplit(url)
    request = urllib.request.Request(url, headers={"Accept": "text/html", "User-Agent": "qwenlab"})
    if parts.username:
        name, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
        bare = parts.netloc.rsplit("@", 1)[-1]
        request = urllib.request.Request(
            urllib.parse.urlunsplit(parts._replace(netloc=bare)), headers=dict(request.headers)
        )
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode())
    return urllib.request.urlopen(request, timeout=120)


def hide(url: str) -> str:
    """An address without its credentials."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[-1]))


if __name__ == "__main__":
    sys.exit(main())

"""Pages of a package index (the simple repository API, PEP 503 and PEP 691): read either form, write either form."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin

JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "text/html"
ACCEPT = f"{JSON_TYPE}, {HTML_TYPE};q=0.5"


@dataclass(frozen=True)
class IndexFile:
    """One file of a project: what of it clients use to choose and verify.

    Attributes:
        name: file name.
        url: absolute address.
        sha256: digest, empty when the index names none.
        requires_python: specifier, empty for any.
        metadata: whether `url` + ".metadata" exists (PEP 658).
        yanked: reason for which it should not be chosen; False when it may.
        size: bytes, None when unknown.
        upload_time: ISO 8601, empty when unknown.
    """

    name: str
    url: str
    sha256: str = ""
    requires_python: str = ""
    metadata: bool = False
    yanked: bool | str = False
    size: int | None = None
    upload_time: str = ""

    def at(self, url: str) -> IndexFile:
        """The same file at another address."""
        return replace(self, url=url)


def read(text: str, content_type: str, base: str) -> list[IndexFile]:
    """Files named by a page that lies at `base`."""
    if "json" in content_type:
        return [_from_json(entry, base) for entry in json.loads(text)["files"]]
    parser = _Links(base)
    parser.feed(text)
    return parser.files


def write(project: str, files: list[IndexFile], accept: str) -> tuple[str, bytes]:
    """Content type and page, in the form that the client accepts."""
    if JSON_TYPE in accept:
        document = {"meta": {"api-version": "1.1"}, "name": project, "files": [_to_json(file) for file in files]}
        # A version list is what 1.1 adds; clients that need it read it from file names when it is missing.
        document["versions"] = []
        return JSON_TYPE, json.dumps(document).encode()
    return HTML_TYPE, _to_html(project, files).encode()


def _from_json(entry: dict[str, Any], base: str) -> IndexFile:
    return IndexFile(
        name=entry["filename"],
        url=urljoin(base, entry["url"]),
        sha256=entry.get("hashes", {}).get("sha256", ""),
        requires_python=entry.get("requires-python") or "",
        metadata=bool(entry.get("core-metadata", entry.get("dist-info-metadata", False))),
        yanked=entry.get("yanked", False),
        size=entry.get("size"),
        upload_time=entry.get("upload-time") or "",
    )


def _to_json(file: IndexFile) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "filename": file.name,
        "url": file.url,
        "hashes": {"sha256": file.sha256} if file.sha256 else {},
        "requires-python": file.requires_python or None,
        "core-metadata": file.metadata,
        "yanked": file.yanked,
    }
    optional = {"size": file.size, "upload-time": file.upload_time or None}
    return entry | {name: value for name, value in optional.items() if value is not None}


def _to_html(project: str, files: list[IndexFile]) -> str:
    lines = [f"<!DOCTYPE html><html><head><title>Links for {html.escape(project)}</title></head><body>"]
    for file in files:
        attributes = {
            "href": file.url + (f"#sha256={file.sha256}" if file.sha256 else ""),
            "data-requires-python": file.requires_python,
            "data-core-metadata": "true" if file.metadata else "",
            "data-yanked": ("" if file.yanked is True else file.yanked) if file.yanked else None,
        }
        shown = [f'{name}="{html.escape(value)}"' for name, value in attributes.items() if value]
        lines.append(f"<a {' '.join(shown)}>{html.escape(file.name)}</a><br>")
    return "\n".join([*lines, "</body></html>"])


class _Links(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.files: list[IndexFile] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag != "a" or "href" not in values:
            return
        url, fragment = urldefrag(urljoin(self.base, values["href"]))
        metadata = values.get("data-core-metadata", values.get("data-dist-info-metadata", ""))
        self.files.append(
            IndexFile(
                name=url.rsplit("/", 1)[-1].replace("%2B", "+"),
                url=url,
                sha256=fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else "",
                requires_python=values.get("data-requires-python", ""),
                metadata=metadata not in ("", "false"),
                yanked=(values["data-yanked"] or True) if "data-yanked" in values else False,
            )
        )

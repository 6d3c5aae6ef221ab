"""From the manifest and a choice of patches to the job that `applier` carries out on a host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwenlab.patches.applier import digest
from qwenlab.patches.manifest import SeriesError, diff, file_digests, load
from qwenlab.patches.needs import ordered


@dataclass(frozen=True)
class ExtraPatch:
    """One diff of another series; `name` is "series/file"."""

    name: str
    diff: str


def make_job(
    vllm: str, ids: Iterable[str], extra: Sequence[ExtraPatch] = (), root: Path | None = None
) -> dict[str, Any]:
    """The job for `applier`: diffs, and digests of the touched files before and after the own series.

    Raises:
        SeriesError: a diff or digest is missing or wrong.
        UnknownPatch: an id is not in the series.
    """
    series = load(vllm, root)
    chosen = ordered(series, ids)
    digests = file_digests(vllm, root) if chosen else {}
    patches = [series.patch(name) for name in chosen]
    files = {}
    for path in sorted({path for patch in patches for path in patch.files}):
        key = "+".join(patch.id for patch in patches if path in patch.files)
        try:
            files[path] = {"stock": digests[path].stock, "patched": digests[path].patched[key]}
        except KeyError:
            raise SeriesError(f"digests.json of vLLM {vllm} does not hold {path} with {key}: seal the series") from None
    job: dict[str, Any] = {
        "vllm": vllm,
        "patches": [{"id": patch.id, "sha256": patch.sha256, "diff": diff(vllm, patch, root)} for patch in patches],
        "extra": [{"id": patch.name, "diff": patch.diff} for patch in extra],
        "files": files,
    }
    return {"digest": digest(json.dumps(job, sort_keys=True).encode()), **job}

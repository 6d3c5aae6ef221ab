"""Holds a series against a release: digests, every patch alone, all together, compiled, taken back."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from pathlib import Path

from qwenlab.patches.applier import (
    FilePatch,
    Hunk,
    PatchRefused,
    apply_job,
    digest,
    installed_version,
    parse,
    place_exactly,
    reversed_hunks,
    verify_job,
)
from qwenlab.patches.job import make_job
from qwenlab.patches.manifest import Series, SeriesError, diff, file_digests, load, series_root

Placed = tuple[str, Hunk]


@dataclass
class CheckReport:
    """What `check` found; `problems` is empty if the series holds."""

    vllm: str
    patches: list[str] = field(default_factory=list)
    files: int = 0
    problems: list[str] = field(default_factory=list)


def check(vllm: str, tree: Path, root: Path | None = None) -> CheckReport:
    """Apply the series of `vllm` to `tree` (which is changed and brought back), and compare byte by byte."""
    report = CheckReport(vllm)
    try:
        series = load(vllm, root)
        diffs = {patch.id: parse(diff(vllm, patch, root), patch.id) for patch in series.patches}
    except (SeriesError, PatchRefused) as error:
        report.problems.append(str(error))
        return report
    report.patches = list(series.ids)
    report.problems += _manifest_problems(series, diffs)
    paths = sorted({file.path for files in diffs.values() for file in files})
    report.files = len(paths)
    original = {path: (tree / path).read_bytes() for path in paths if (tree / path).is_file()}
    report.problems += _context_problems(diffs)
    report.problems += _alone_problems(series, tree, root)
    if report.problems:
        return report
    try:
        job = make_job(vllm, series.ids, root=root)
        apply_job(job, tree)
        verify_job(job, tree)
    except (PatchRefused, SeriesError) as refused:
        report.problems.append(str(refused))
        return report
    report.problems += _reverse(diffs, tree, original)
    return report


def _manifest_problems(series: Series, diffs: dict[str, list[FilePatch]]) -> list[str]:
    problems = []
    for patch in series.patches:
        touched = tuple(sorted(file.path for file in diffs[patch.id]))
        if touched != tuple(sorted(patch.files)):
            problems.append(f"{patch.id}: the manifest names {', '.join(patch.files)}, the diff {', '.join(touched)}")
        for other in patch.conflicts:
            if other not in series.ids:
                problems.append(f"{patch.id}: conflicts with {other}, which is not in the series")
    return problems


def _context_problems(diffs: dict[str, list[FilePatch]]) -> list[str]:
    """Two patches that share even a context line would depend on each other's presence."""
    spans: dict[str, list[tuple[int, int, str]]] = {}
    for name, files in diffs.items():
        for file in files:
            spans.setdefault(file.path, []).extend((hunk.index, hunk.end, name) for hunk in file.hunks)
    problems = []
    for path, found in spans.items():
        ordered = sorted(found)
        for (_, end, before), (start, _, after) in pairwise(ordered):
            if start < end:
                problems.append(f"{before} and {after} share lines of {path}")
    return problems


def _alone_problems(series: Series, tree: Path, root: Path | None) -> list[str]:
    """Every patch by itself fits a stock tree and gives a file that compiles, as the digests say."""
    problems = []
    digests = file_digests(series.vllm, root)
    for path, expected in digests.items():
        try:
            found_digest = digest((tree / path).read_bytes())
        except OSError:
            problems.append(f"missing-file: {path}")
            continue
        if found_digest in expected.patched.values():
            problems.append(f"half-applied: {path} is patched already; check the series on a released tree")
        elif found_digest != expected.stock:
            problems.append(f"changed-by-hand: {path} is not the file of vLLM {series.vllm}")
    if found := (None if installed_version(tree) == series.vllm else installed_version(tree)):
        problems.insert(0, f"wrong-version: the series is for vLLM {series.vllm}, the tree holds {found}")
    if problems:
        return problems
    for patch in series.patches:
        try:
            for file in parse(diff(series.vllm, patch, root), patch.id):
                text = place_exactly((tree / file.path).read_text(), _named(patch.id, file), file.path)
                compile(text, file.path, "exec")
                if digest(text.encode()) != digests[file.path].patched[patch.id]:
                    problems.append(f"{patch.id}: {file.path} has not the digest of digests.json; seal the series")
        except (PatchRefused, SyntaxError, KeyError) as error:
            problems.append(f"{patch.id}: {error}")
    return problems


def _named(name: str, file: FilePatch) -> list[Placed]:
    return [(name, hunk) for hunk in file.hunks]


def _reverse(diffs: dict[str, list[FilePatch]], tree: Path, original: dict[str, bytes]) -> list[str]:
    hunks: dict[str, list[Hunk]] = {}
    for files in diffs.values():
        for file in files:
            hunks.setdefault(file.path, []).extend(file.hunks)
    problems = []
    for path, found in hunks.items():
        back = [("reversed", hunk) for hunk in reversed_hunks(found)]
        try:
            text = place_exactly((tree / path).read_text(), back, path)
        except PatchRefused as refused:
            problems.append(f"{path}: cannot be taken back: {refused}")
            continue
        (tree / path).write_text(text)
        if text.encode() != original[path]:
            problems.append(f"{path}: taken back, it is not the released file")
    return problems


def seal(vllm: str, tree: Path, root: Path | None = None) -> list[str]:
    """Write what can be computed: the diffs' SHA-256 into series.yaml, the files' into digests.json.

    Returns:
        The names of the files that changed.
    """
    folder = (root or series_root()) / vllm
    changed = []
    manifest = folder / "series.yaml"
    text = before = manifest.read_text()
    series = load(vllm, root)
    parsed = {}
    for patch in series.patches:
        content = diff(vllm, patch, root, verify=False)
        parsed[patch.id] = parse(content, patch.id)
        text = re.sub(
            rf"(- id: {re.escape(patch.id)}\n(?:(?!  - id: ).*\n)*?    sha256: ')[0-9a-f]{{64}}",
            rf"\g<1>{digest(content.encode())}",
            text,
        )
    if text != before:
        manifest.write_text(text)
        changed.append(manifest.name)
    load.cache_clear()
    data = json.dumps({"vllm": vllm, "files": _digests(series.ids, parsed, tree)}, indent=1) + "\n"
    target = folder / "digests.json"
    if not target.exists() or target.read_text() != data:
        target.write_text(data)
        changed.append(target.name)
    file_digests.cache_clear()
    return changed


def _digests(ids: tuple[str, ...], diffs: dict[str, list[FilePatch]], tree: Path) -> dict[str, dict[str, object]]:
    touching: dict[str, dict[str, FilePatch]] = {}
    for name in ids:
        for file in diffs[name]:
            touching.setdefault(file.path, {})[name] = file
    result: dict[str, dict[str, object]] = {}
    for path, files in sorted(touching.items()):
        stock = (tree / path).read_text()
        choices = {}
        for size in range(1, len(files) + 1):
            for names in combinations(files, size):
                placed = [item for name in names for item in _named(name, files[name])]
                choices["+".join(names)] = digest(place_exactly(stock, placed, path).encode())
        result[path] = {"stock": digest(stock.encode()), "patched": choices}
    return result

"""Applies a patch job to an installed vLLM: all of it or nothing. Standard library only, since it runs on the host.

    python applier.py apply|verify JOB.json [SITE_PACKAGES]      (default: those of the interpreter)

The job (see `qwenlab.patches.job`) holds the diffs and the SHA-256 of every touched file before and after. Hunks of
the own series are placed at their stated line of the stock file, with their whole context, so any choice of patches
fits in any order; a hunk of another series, written against its own neighbours, may lie elsewhere if exactly one place
takes it. Nothing is guessed: there is no fuzz. Prints one JSON object; exit code 0 done, 3 refused (tree unchanged).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECEIPT = "qwenlab-patches.json"
REFUSED = 3
_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class PatchRefused(Exception):
    """The tree was left as it was.

    Attributes:
        code: corrupted-diff, corrupted-hunk, moved-context, overlapping-patches, wrong-version, half-applied,
            changed-by-hand, missing-file, unexpected-result, unsafe-path.
        text: what is wrong, with the file or patch by name.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


@dataclass(frozen=True)
class Hunk:
    """One replacement: `old` (context and removed lines) at line `start` (from 1) becomes `new`; lines keep ends."""

    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def index(self) -> int:
        """0-based line where `old` begins; a hunk without old lines (a new file) begins at 0."""
        return max(self.start - 1, 0)

    @property
    def end(self) -> int:
        """0-based line after `old`."""
        return self.index + len(self.old)


@dataclass
class FilePatch:
    """All hunks of one file; `creates` if the file must not exist before."""

    path: str
    creates: bool
    hunks: list[Hunk] = field(default_factory=list)


def digest(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def parse(diff: str, name: str) -> list[FilePatch]:
    """Read a unified diff with paths below `a/` and `b/`.

    Raises:
        PatchRefused: corrupted-diff, corrupted-hunk (the counts in its header do not add up), unsafe-path, or a
            deletion, renaming or binary change, which no series here may hold.
    """
    found: list[FilePatch] = []
    lines = diff.splitlines(keepends=True)
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(("rename ", "deleted file", "GIT binary", "Binary files")):
            raise PatchRefused("corrupted-diff", f"{name}: {line.strip()!r} is not a change that a series may hold")
        if line.startswith("--- "):
            if at + 1 >= len(lines) or not lines[at + 1].startswith("+++ "):
                raise PatchRefused("corrupted-diff", f"{name}: line {at + 1} has no '+++' line after it")
            found.append(_header(line, lines[at + 1], name))
            at += 2
        elif line.startswith("@@"):
            if not found:
                raise PatchRefused("corrupted-diff", f"{name}: line {at + 1} is a hunk before any file name")
            hunk, at = _hunk(lines, at, name)
            found[-1].hunks.append(hunk)
        elif line[:1] in ("+", "-", " "):
            raise PatchRefused("corrupted-hunk", f"{name}: line {at + 1} lies outside every hunk")
        else:
            at += 1
    empty = [patch.path for patch in found if not patch.hunks]
    if not found or empty:
        raise PatchRefused("corrupted-diff", f"{name}: no hunks{' for ' + empty[0] if empty else ''}")
    return found


def _header(minus: str, plus: str, name: str) -> FilePatch:
    old, new = (line[4:].split("\t")[0].strip() for line in (minus, plus))
    creates = old == "/dev/null"
    path = new.removeprefix("b/")
    if new == "/dev/null" or not (creates or old.removeprefix("a/") == path):
        raise PatchRefused("corrupted-diff", f"{name}: {old} -> {new} deletes or renames a file")
    parts = path.split("/")
    if parts[0] != "vllm" or len(parts) < 2 or any(part in ("", ".", "..") for part in parts):
        raise PatchRefused("unsafe-path", f"{name}: {path} does not lie below vllm/")
    return FilePatch(path, creates)


def _hunk(lines: list[str], at: int, name: str) -> tuple[Hunk, int]:
    header = _HUNK.match(lines[at])
    if header is None:
        raise PatchRefused("corrupted-hunk", f"{name}: line {at + 1} is no hunk header: {lines[at].strip()}")
    start, old_count, new_count = int(header[1]), int(header[2] or 1), int(header[4] or 1)
    old: list[str] = []
    new: list[str] = []
    first, at = at, at + 1
    while at < len(lines) and (len(old) < old_count or len(new) < new_count):
        kind, rest = lines[at][:1], lines[at][1:]
        if kind == "\n":  # an empty context line whose leading blank an editor has dropped
            kind, rest = " ", "\n"
        if kind not in ("+", "-", " "):
            break
        if kind in ("-", " "):
            old.append(rest)
        if kind in ("+", " "):
            new.append(rest)
        at += 1
        if at < len(lines) and lines[at].startswith("\\ No newline"):
            for side, kinds in ((old, "- "), (new, "+ ")):
                if kind in kinds:
                    side[-1] = side[-1].removesuffix("\n")
            at += 1
    if len(old) != old_count or len(new) != new_count:
        raise PatchRefused(
            "corrupted-hunk",
            f"{name}: the hunk at line {first + 1} says {old_count} and {new_count} lines, it has {len(old)} and "
            f"{len(new)}",
        )
    return Hunk(start, tuple(old), tuple(new)), at


def place_exactly(text: str, hunks: Iterable[tuple[str, Hunk]], path: str) -> str:
    """Replace every hunk at its stated line of `text`; `hunks` are (patch name, hunk) in any order.

    Raises:
        PatchRefused: moved-context where a line differs, overlapping-patches where two hunks share a line.
    """
    lines = text.splitlines(keepends=True)
    result: list[str] = []
    done, before = 0, ""
    for name, hunk in sorted(hunks, key=lambda item: item[1].start):
        if hunk.index < done:
            raise PatchRefused("overlapping-patches", f"{before} and {name} change the same lines of {path}")
        if tuple(lines[hunk.index : hunk.end]) != hunk.old:
            raise PatchRefused("moved-context", f"{name}: line {hunk.start} of {path} does not read as the hunk says")
        result += lines[done : hunk.index]
        result += hunk.new
        done, before = hunk.end, name
    return "".join(result + lines[done:])


def reversed_hunks(hunks: Iterable[Hunk]) -> list[Hunk]:
    """The hunks of one file that take back what `place_exactly` did with `hunks`."""
    shift = 0
    back = []
    for hunk in sorted(hunks, key=lambda item: item.start):
        back.append(Hunk(hunk.index + shift + 1, hunk.new, hunk.old))
        shift += len(hunk.new) - len(hunk.old)
    return back


def place_uniquely(text: str, patch: FilePatch, name: str) -> str:
    """Replace the hunks one after the other, each at its stated line or at the only other place that takes it whole.

    Raises:
        PatchRefused: moved-context, also where several places would do.
    """
    lines = text.splitlines(keepends=True)
    shift = 0
    for hunk in patch.hunks:
        size = len(hunk.old)
        stated = hunk.index + shift
        places = [at for at in range(len(lines) - size + 1) if tuple(lines[at : at + size]) == hunk.old]
        if stated in places:
            places = [stated]
        if len(places) != 1:
            number = "no place" if not places else f"{len(places)} places"
            raise PatchRefused("moved-context", f"{name}: {number} in {patch.path} for the hunk at line {hunk.start}")
        lines[places[0] : places[0] + size] = hunk.new
        shift = places[0] - hunk.index + len(hunk.new) - size
    return "".join(lines)


def installed_version(tree: Path) -> str:
    """Release of the vLLM below `tree`, without a local part such as `+cpu`; "none" where there is none."""
    try:
        text = (tree / "vllm" / "_version.py").read_text()
    except OSError:
        return "none"
    found = re.search(r"^__version__ = (?:version = )?['\"]([^'\"+]+)", text, re.MULTILINE)
    return found[1] if found else "unknown"


def _state(job: dict[str, Any], tree: Path) -> dict[str, bytes]:
    """The touched files as they are, if all are stock; empty if all are patched as the job says."""
    contents: dict[str, bytes] = {}
    fresh, patched, other = [], [], []
    for path, digests in job["files"].items():
        try:
            contents[path] = (tree / path).read_bytes()
        except OSError as error:
            raise PatchRefused("missing-file", f"{path}: {error.strerror}") from None
        found = digest(contents[path])
        if found == digests["stock"]:
            fresh.append(path)
        elif found == digests["patched"]:
            patched.append(path)
        else:
            other.append(path)
    if other:
        raise PatchRefused(
            "changed-by-hand",
            f"{', '.join(other)}: neither vLLM {job['vllm']}'s file nor the patched one; build the release anew",
        )
    if fresh and patched:
        raise PatchRefused(
            "half-applied",
            f"{', '.join(patched)} patched, {', '.join(fresh)} not; build the release anew",
        )
    return {} if patched else contents


def patched_contents(job: dict[str, Any], tree: Path, stock: dict[str, bytes]) -> dict[str, bytes]:
    """What every touched file becomes, computed in memory and held against the job's digests."""
    hunks: dict[str, list[tuple[str, Hunk]]] = {}
    for entry in job["patches"]:
        if digest(entry["diff"].encode()) != entry["sha256"]:
            raise PatchRefused("corrupted-diff", f"{entry['id']}: the diff does not have the digest of the manifest")
        for patch in parse(entry["diff"], entry["id"]):
            hunks.setdefault(patch.path, []).extend((entry["id"], hunk) for hunk in patch.hunks)
    result = {}
    for path, placed in hunks.items():
        result[path] = place_exactly(stock[path].decode(), placed, path).encode()
        if digest(result[path]) != job["files"][path]["patched"]:
            raise PatchRefused("unexpected-result", f"{path}: the patched file has not the digest of the manifest")
    for entry in job.get("extra", []):
        for patch in parse(entry["diff"], entry["id"]):
            target = tree / patch.path
            if patch.creates and (target.exists() or patch.path in result):
                raise PatchRefused("moved-context", f"{entry['id']}: {patch.path} exists, the patch creates it")
            if not patch.creates and not target.exists() and patch.path not in result:
                raise PatchRefused("missing-file", f"{entry['id']}: no {patch.path}")
            before = result.get(patch.path, b"" if patch.creates else target.read_bytes() if target.exists() else b"")
            result[patch.path] = place_uniquely(before.decode(), patch, entry["id"]).encode()
    for path, data in result.items():
        try:
            compile(data, path, "exec")
        except SyntaxError as error:
            raise PatchRefused("unexpected-result", f"{path}: line {error.lineno}: {error.msg}") from None
    return result


def _write(tree: Path, contents: dict[str, bytes]) -> None:
    """Replace the files, each by renaming (installers hard-link files from their cache); put back on any error."""
    originals = {path: (tree / path).read_bytes() if (tree / path).exists() else None for path in contents}
    try:
        for path, data in contents.items():
            _replace(tree / path, data)
        for path, data in contents.items():
            if digest((tree / path).read_bytes()) != digest(data):
                raise PatchRefused("unexpected-result", f"{path} does not read as it was written")
    except BaseException:
        for path, original in originals.items():
            if original is None:
                (tree / path).unlink(missing_ok=True)
            else:
                _replace(tree / path, original)
        raise
    for path in contents:
        for compiled in (tree / path).parent.glob(f"__pycache__/{Path(path).stem}.*.pyc"):
            compiled.unlink(missing_ok=True)


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.qwenlab")
    try:
        with partial.open("wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        partial.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def apply_job(job: dict[str, Any], tree: Path) -> dict[str, Any]:
    """Bring `tree` (a site-packages folder) to what the job says.

    Returns:
        {"changed": bool, "patches": [ids], "files": {path: SHA-256 after}}.

    Raises:
        PatchRefused: see its codes; the tree is as it was.
    """
    found = installed_version(tree)
    if found != job["vllm"]:
        raise PatchRefused("wrong-version", f"the series is for vLLM {job['vllm']}, {tree} holds {found}")
    names = [entry["id"] for entry in (*job["patches"], *job.get("extra", []))]
    receipt = tree / RECEIPT
    if receipt.exists():
        known = json.loads(receipt.read_text())
        if known.get("job") != job["digest"]:
            raise PatchRefused("half-applied", f"{tree} was patched by another job; build the release anew")
        verify_job(job, tree)
        return {"changed": False, "patches": names, "files": known["files"]}
    stock = _state(job, tree)
    if job["files"] and not stock:
        raise PatchRefused("half-applied", f"the files are patched, but {RECEIPT} is missing; build the release anew")
    contents = patched_contents(job, tree, stock)
    _write(tree, contents)
    files = {path: digest(data) for path, data in contents.items()}
    if names:
        _replace(receipt, json.dumps({"job": job["digest"], "patches": names, "files": files}, indent=1).encode())
    return {"changed": bool(names), "patches": names, "files": files}


def verify_job(job: dict[str, Any], tree: Path) -> dict[str, Any]:
    """Hold every touched file against the receipt and the job. Raises PatchRefused where one differs."""
    names = [entry["id"] for entry in (*job["patches"], *job.get("extra", []))]
    if not names:
        if (tree / RECEIPT).exists():
            raise PatchRefused("changed-by-hand", f"{tree} holds patches, the plan needs none")
        return {"changed": False, "patches": [], "files": {}}
    try:
        known = json.loads((tree / RECEIPT).read_text())
    except OSError:
        raise PatchRefused("half-applied", f"{tree} holds no {RECEIPT}: the series was not applied") from None
    if known.get("job") != job["digest"]:
        raise PatchRefused("half-applied", f"{tree} was patched by another job; build the release anew")
    for path, expected in known["files"].items():
        try:
            found = digest((tree / path).read_bytes())
        except OSError as error:
            raise PatchRefused("missing-file", f"{path}: {error.strerror}") from None
        if found != expected:
            raise PatchRefused("changed-by-hand", f"{path} is not as the series left it; build the release anew")
    return {"changed": False, "patches": names, "files": known["files"]}


def main(argv: list[str]) -> int:
    """See the module."""
    if len(argv) not in (2, 3) or argv[0] not in ("apply", "verify"):
        print("usage: applier.py apply|verify JOB.json [SITE_PACKAGES]", file=sys.stderr)
        return 64
    tree = Path(argv[2] if len(argv) == 3 else sysconfig.get_path("platlib"))
    job = json.loads(Path(argv[1]).read_text())
    act = apply_job if argv[0] == "apply" else verify_job
    try:
        print(json.dumps(act(job, tree)))
    except PatchRefused as refused:
        print(json.dumps({"refused": refused.code, "text": refused.text}))
        print(f"vLLM was not patched: {refused.text} ({refused.code})", file=sys.stderr)
        return REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

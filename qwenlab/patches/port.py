"""What a machine can do to bring the series to another vLLM: which hunks still fit, where files and lines went."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from qwenlab.patches.applier import FilePatch, Hunk, parse
from qwenlab.patches.manifest import Patch, diff, load

ALIKE = 0.5  # share of a hunk's distinctive lines that a file must hold to be named as its new place


@dataclass(frozen=True)
class HunkReport:
    """One hunk in the new release: `line` is where it fits (1-based), None if it does not."""

    path: str
    old_line: int
    new_path: str | None
    line: int | None
    note: str


@dataclass
class PatchReport:
    """One patch in the new release."""

    id: str
    tests: tuple[str, ...]
    hunks: list[HunkReport] = field(default_factory=list)

    @property
    def fits(self) -> bool:
        """Whether every hunk has its place."""
        return all(hunk.line is not None for hunk in self.hunks)


@dataclass
class PortReport:
    """The whole series in the new release."""

    old: str
    new: str
    patches: list[PatchReport] = field(default_factory=list)
    written: list[str] = field(default_factory=list)


def port(old: str, old_tree: Path, new: str, new_tree: Path, write: Path | None = None) -> PortReport:
    """Look for every hunk of the series of `old` in `new_tree`; with `write` put refitted diffs there.

    A hunk fits where its whole old text (context and removed lines) stands exactly once in one file: the same file, or,
    if that is gone or holds it no more, another file of the package. The old tree is not changed either; it tells
    whether a file that does not fit was changed at all.
    """
    report = PortReport(old, new)
    texts = _Texts(new_tree)
    for patch in load(old).patches:
        found = PatchReport(patch.id, patch.tests)
        refitted: dict[str, list[Hunk]] = {}
        for file in parse(diff(old, patch), patch.id):
            for hunk in file.hunks:
                placed = _place(file, hunk, texts, old_tree)
                found.hunks.append(placed)
                if placed.line is not None and placed.new_path is not None:
                    refitted.setdefault(placed.new_path, []).append(Hunk(placed.line, hunk.old, hunk.new))
        report.patches.append(found)
        if write is not None and found.fits:
            report.written.append(_write(write, patch, refitted))
    return report


class _Texts:
    """The Python files of a tree, read once."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._known: dict[str, str | None] = {}

    def of(self, path: str) -> str | None:
        if path not in self._known:
            target = self.tree / path
            self._known[path] = target.read_text(errors="replace") if target.is_file() else None
        return self._known[path]

    def paths(self) -> Iterable[str]:
        return (path.relative_to(self.tree).as_posix() for path in sorted(self.tree.rglob("*.py")))


def _lines_of(text: str, hunk: Hunk) -> list[int]:
    """1-based lines at which the old text of `hunk` stands in `text`."""
    block = "".join(hunk.old)
    found = []
    at = text.find(block)
    while at != -1:
        if at == 0 or text[at - 1] == "\n":
            found.append(text.count("\n", 0, at) + 1)
        at = text.find(block, at + 1)
    return found


def _place(file: FilePatch, hunk: Hunk, texts: _Texts, old_tree: Path) -> HunkReport:
    here = texts.of(file.path)
    lines = _lines_of(here, hunk) if here is not None else []
    if len(lines) == 1:
        moved = lines[0] - hunk.start
        return HunkReport(
            file.path, hunk.start, file.path, lines[0], "fits" if not moved else f"fits, {moved:+d} lines"
        )
    if len(lines) > 1:
        return HunkReport(file.path, hunk.start, file.path, None, f"fits at {len(lines)} places: choose by hand")
    exact = [(path, found) for path in texts.paths() if (found := _lines_of(texts.of(path) or "", hunk))]
    if len(exact) == 1 and len(exact[0][1]) == 1:
        path, found = exact[0]
        return HunkReport(file.path, hunk.start, path, found[0], f"fits in {path}: the code moved there")
    if here is None:
        return HunkReport(file.path, hunk.start, None, None, f"the file is gone; {_nearest(hunk, texts)}")
    unchanged = (old_tree / file.path).read_text(errors="replace") == here
    note = "the file is unchanged, the series is not sealed for it" if unchanged else _first_difference(here, hunk)
    return HunkReport(file.path, hunk.start, file.path, None, note)


def _distinctive(hunk: Hunk) -> set[str]:
    return {line.strip() for line in hunk.old if len(line.strip()) > 12}


def _nearest(hunk: Hunk, texts: _Texts) -> str:
    wanted = _distinctive(hunk)
    best, share = "", 0.0
    for path in texts.paths():
        text = texts.of(path) or ""
        held = sum(line in text for line in wanted) / max(len(wanted), 1)
        if held > share:
            best, share = path, held
    return f"most like it: {best} ({share:.0%} of its lines)" if share >= ALIKE else "nothing like it elsewhere"


def _first_difference(text: str, hunk: Hunk) -> str:
    present = {line.strip() for line in text.splitlines()}
    gone = [line.strip() for line in hunk.old if line.strip() and line.strip() not in present]
    if gone:
        return f"rewritten upstream: {gone[0]!r} is gone"
    return "rewritten upstream: the lines are there, in another order"


def _write(folder: Path, patch: Patch, refitted: dict[str, list[Hunk]]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    out = []
    for path, hunks in sorted(refitted.items()):
        out.append(f"--- a/{path}\n+++ b/{path}\n")
        shift = 0
        for hunk in sorted(hunks, key=lambda item: item.start):
            out.append(f"@@ -{hunk.start},{len(hunk.old)} +{hunk.start + shift},{len(hunk.new)} @@\n")
            out += _body(hunk)
            shift += len(hunk.new) - len(hunk.old)
    (folder / f"{patch.id}.patch").write_text("".join(out))
    return f"{patch.id}.patch"


def _body(hunk: Hunk) -> list[str]:
    """The lines of a hunk with their marks: the common ones as context, found from both ends and in between."""
    from difflib import SequenceMatcher

    lines: list[str] = []
    for kind, a, b, c, d in SequenceMatcher(None, hunk.old, hunk.new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += [" " + line for line in hunk.old[a:b]]
        else:
            lines += ["-" + line for line in hunk.old[a:b]] + ["+" + line for line in hunk.new[c:d]]
    return lines


def report_lines(report: PortReport) -> list[str]:
    """The report as text: patch by patch, hunk by hunk, and what to do next."""
    lines = [f"vLLM {report.old} -> {report.new}"]
    for patch in report.patches:
        fitting = sum(hunk.line is not None for hunk in patch.hunks)
        lines.append(f"{patch.id}: {fitting} of {len(patch.hunks)} hunks fit")
        lines += [f"    {hunk.path}:{hunk.old_line}  {hunk.note}" for hunk in patch.hunks]
        lines += [f"    test: {test.replace(report.old, report.new)}" for test in patch.tests]
    whole = [patch.id for patch in report.patches if patch.fits]
    lines.append(f"{len(whole)} of {len(report.patches)} patches fit as they are")
    if report.written:
        lines.append(f"written: {', '.join(report.written)}")
    lines.append(
        "Next: run the red half of the tests on the new release; a patch whose test is green there is retired."
    )
    return lines

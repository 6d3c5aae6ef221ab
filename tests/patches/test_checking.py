"""A series held against a released vLLM, and brought to another one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from qwenlab.patches import manifest
from qwenlab.patches.applier import parse
from qwenlab.patches.checking import check, seal
from qwenlab.patches.manifest import SeriesError, diff, load
from qwenlab.patches.port import port

PLAIN = "vllm/plain.py"
STOCK = "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\nf = 6\ng = 7\nh = 8\ni = 9\n"
EDIT = f"--- a/{PLAIN}\n+++ b/{PLAIN}\n@@ -2,3 +2,3 @@\n b = 2\n-c = 3\n+c = 33\n d = 4\n"

MANIFEST = f"""\
vllm: 9.9.0
patches:
  - id: edit
    title: An edit
    kind: fix
    files: [{PLAIN}]
    breaks_without: it
    upstream: none
    needed_when:
      text: always
    retire_when: never
    tests: [tests/patches/test_checking.py]
    sha256: '{"0" * 64}'
"""


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A release of one file."""
    folder = tmp_path / "released"
    (folder / "vllm").mkdir(parents=True)
    (folder / PLAIN).write_text(STOCK)
    (folder / "vllm/_version.py").write_text("__version__ = version = '9.9.0'\n")
    return folder


@pytest.fixture
def series(tmp_path: Path, released: Path) -> Path:
    """A sealed series of one patch for it."""
    root = tmp_path / "series"
    (root / "9.9.0").mkdir(parents=True)
    (root / "9.9.0/series.yaml").write_text(MANIFEST)
    (root / "9.9.0/edit.patch").write_text(EDIT)
    assert seal("9.9.0", released, root) == ["series.yaml", "digests.json"]
    assert seal("9.9.0", released, root) == []
    return root


def test_a_diff_changed_after_sealing_is_refused(series: Path) -> None:
    (series / "9.9.0/edit.patch").write_text(EDIT.replace("33", "34"))
    with pytest.raises(SeriesError, match=r"edit\.patch: the SHA-256"):
        diff("9.9.0", load("9.9.0", series).patches[0], series)


def test_check_leaves_the_tree_as_it_was(series: Path, released: Path) -> None:
    report = check("9.9.0", released, series)
    assert report.problems == []
    assert (report.patches, report.files) == (["edit"], 1)
    assert (released / PLAIN).read_text() == STOCK


def rename_version(tree: Path, root: Path) -> None:
    (tree / "vllm/_version.py").write_text("__version__ = '9.9.1'\n")


def move_lines(tree: Path, root: Path) -> None:
    (tree / PLAIN).write_text("new = 0\n" + STOCK)


def apply_by_hand(tree: Path, root: Path) -> None:
    (tree / PLAIN).write_text(STOCK.replace("c = 3", "c = 33"))


def drop_file(tree: Path, root: Path) -> None:
    (tree / PLAIN).unlink()


def break_hunk(tree: Path, root: Path) -> None:
    (root / "9.9.0/edit.patch").write_text(EDIT.replace("-c = 3\n", ""))


def unlist_file(tree: Path, root: Path) -> None:
    path = root / "9.9.0/series.yaml"
    path.write_text(path.read_text().replace(PLAIN, "vllm/other.py"))
    manifest.load.cache_clear()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (rename_version, "wrong-version: the series is for vLLM 9.9.0, the tree holds 9.9.1"),
        (move_lines, f"changed-by-hand: {PLAIN}"),
        (apply_by_hand, f"half-applied: {PLAIN}"),
        (drop_file, f"missing-file: {PLAIN}"),
        (break_hunk, "edit.patch: the SHA-256"),
        (unlist_file, "edit: the manifest names vllm/other.py"),
    ],
)
def test_check_names_what_is_wrong(
    change: Callable[[Path, Path], None], expected: str, series: Path, released: Path
) -> None:
    change(released, series)
    found = {path: path.read_bytes() for path in released.rglob("*.py")}
    assert expected in "\n".join(check("9.9.0", released, series).problems)
    assert {path: path.read_bytes() for path in released.rglob("*.py")} == found


NEW_PLACES = {
    "as it was": ({PLAIN: STOCK}, "fits", True),
    "further down": ({PLAIN: "x = 0\n" + STOCK}, "fits, +1 lines", True),
    "in another file": ({"vllm/moved.py": STOCK}, "fits in vllm/moved.py: the code moved there", True),
    "rewritten": ({PLAIN: STOCK.replace("c = 3", "c = 3.0")}, "rewritten upstream: 'c = 3' is gone", False),
    "twice": ({PLAIN: STOCK + STOCK}, "fits at 2 places: choose by hand", False),
    "gone": ({"vllm/other.py": "pass\n"}, "the file is gone; nothing like it elsewhere", False),
}


@pytest.mark.parametrize(("files", "note", "fits"), NEW_PLACES.values(), ids=NEW_PLACES)
def test_port_tells_where_hunks_went(
    files: dict[str, str],
    note: str,
    fits: bool,
    series: Path,
    released: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manifest, "series_root", lambda: series)
    manifest.load.cache_clear()
    new = tmp_path / "new"
    for name, text in files.items():
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).write_text(text)
    report = port("9.9.0", released, "9.9.1", new, tmp_path / "written")
    manifest.load.cache_clear()
    assert [hunk.note for hunk in report.patches[0].hunks] == [note]
    assert report.patches[0].fits == fits
    assert report.written == (["edit.patch"] if fits else [])
    if fits:
        written = parse((tmp_path / "written/edit.patch").read_text(), "edit")[0]
        assert written.path in files
        assert written.hunks[0].new == ("b = 2\n", "c = 33\n", "d = 4\n")

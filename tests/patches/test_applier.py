"""What the applier refuses, by name and with nothing changed, and what it does when all is well."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwenlab.patches import applier
from qwenlab.patches.applier import (
    RECEIPT,
    REFUSED,
    Hunk,
    PatchRefused,
    apply_job,
    digest,
    parse,
    place_exactly,
    place_uniquely,
    reversed_hunks,
    verify_job,
)

ENGINE = "".join(f"line{number} = {number}\n" for number in range(1, 41))
CACHE = "size = 5\n\n\ndef groups():\n    return size\n"
HEAD = "--- a/vllm/engine.py\n+++ b/vllm/engine.py\n"
TWICE = HEAD + "@@ -9,3 +9,4 @@\n line9 = 9\n-line10 = 10\n+line10 = 'ten'\n+extra = 1\n line11 = 11\n"
LATER = HEAD + "@@ -29,3 +29,2 @@\n line29 = 29\n-line30 = 30\n line31 = 31\n"
OTHER = "--- a/vllm/core/cache.py\n+++ b/vllm/core/cache.py\n@@ -1,3 +1,3 @@\n-size = 5\n+size = 8\n \n \n"
CREATES = "--- /dev/null\n+++ b/vllm/engine.py\n@@ -0,0 +1 @@\n+x = 1\n"
DIFFS = {"ten": TWICE, "thirty": LATER, "cache": OTHER}
FILES = {"vllm/engine.py": ENGINE, "vllm/core/cache.py": CACHE, "vllm/_version.py": "__version__ = version = '9.9.0'\n"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def job_of(*names: str, extra: tuple[tuple[str, str], ...] = ()) -> dict[str, Any]:
    """A sealed job of some of DIFFS."""
    touched: dict[str, list[tuple[str, Hunk]]] = {}
    for name in names:
        for file in parse(DIFFS[name], name):
            touched.setdefault(file.path, []).extend((name, hunk) for hunk in file.hunks)
    job: dict[str, Any] = {
        "vllm": "9.9.0",
        "patches": [{"id": name, "sha256": digest(DIFFS[name].encode()), "diff": DIFFS[name]} for name in names],
        "extra": [{"id": name, "diff": diff} for name, diff in extra],
        "files": {
            path: {
                "stock": digest(FILES[path].encode()),
                "patched": digest(place_exactly(FILES[path], hunks, path).encode()),
            }
            for path, hunks in touched.items()
        },
    }
    return {"digest": digest(json.dumps(job).encode()), **job}


def snapshot(tree: Path) -> dict[str, bytes]:
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def replaced(job: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The job with text in its first diff replaced, and that diff's digest made right again."""
    entry = job["patches"][0]
    assert old in entry["diff"]
    entry["diff"] = entry["diff"].replace(old, new, 1)
    entry["sha256"] = digest(entry["diff"].encode())
    return job


def theirs(diff: str) -> dict[str, Any]:
    """A job of ours with a diff of another series after it."""
    return job_of("ten", extra=(("theirs/their.patch", diff),))


def unsealed() -> dict[str, Any]:
    job = job_of("ten")
    job["patches"][0]["diff"] = LATER
    return job


def by_hand(tree: Path) -> None:
    (tree / "vllm/engine.py").write_text(ENGINE.replace("line3 = 3", "line3 = 33"))


def half(tree: Path) -> None:
    apply_job(job_of("cache"), tree)
    (tree / RECEIPT).unlink()


def other_version(tree: Path) -> None:
    (tree / "vllm/_version.py").write_text("__version__ = version = '9.8.0'\n")


def no_version(tree: Path) -> None:
    (tree / "vllm/_version.py").unlink()


def no_cache(tree: Path) -> None:
    (tree / "vllm/core/cache.py").unlink()


def fresh(tree: Path) -> None:
    assert (tree / "vllm/engine.py").is_file()


Change = Callable[[Path], None]
Job = Callable[[], dict[str, Any]]
CASES: dict[str, tuple[str, Change, Job, str]] = {
    # what is wrong: (code, done to the tree, job, named in the text)
    "counts that are off": ("corrupted-hunk", fresh, lambda: replaced(job_of("ten"), "+extra = 1\n", ""), "ten"),
    "a context that reads otherwise": ("moved-context", fresh, lambda: replaced(job_of("ten"), "line9", "l9"), "ten"),
    "a hunk that points elsewhere": ("moved-context", fresh, lambda: replaced(job_of("ten"), "-9,", "-10,"), "ten"),
    "a diff that is not the sealed one": ("corrupted-diff", fresh, unsealed, "ten"),
    "a path that climbs out": (
        "unsafe-path",
        fresh,
        lambda: replaced(replaced(job_of("ten"), "a/vllm/e", "a/vllm/../e"), "b/vllm/e", "b/vllm/../e"),
        "../engine.py",
    ),
    "a file changed by hand": ("changed-by-hand", by_hand, lambda: job_of("ten", "cache"), "vllm/engine.py"),
    "a job half done": ("half-applied", half, lambda: job_of("ten", "cache"), "vllm/core/cache.py"),
    "another version": ("wrong-version", other_version, lambda: job_of("ten"), "9.8.0"),
    "no vLLM": ("wrong-version", no_version, lambda: job_of("ten"), "none"),
    "a missing file": ("missing-file", no_cache, lambda: job_of("ten", "cache"), "vllm/core/cache.py"),
    "theirs on other lines": ("moved-context", fresh, lambda: theirs(LATER.replace("line29", "lX")), "theirs/"),
    "theirs creates what exists": ("moved-context", fresh, lambda: theirs(CREATES), "theirs/"),
    "theirs does not compile": ("unexpected-result", fresh, lambda: theirs(OTHER.replace("= 8", "= = 8")), "cache.py"),
}


@pytest.mark.parametrize(("code", "change", "job", "named"), CASES.values(), ids=CASES)
def test_refused_by_name_with_nothing_changed(code: str, change: Change, job: Job, named: str, tree: Path) -> None:
    change(tree)
    before = snapshot(tree)
    with pytest.raises(PatchRefused) as refused:
        apply_job(job(), tree)
    assert refused.value.code == code
    assert named in refused.value.text
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    ("diff", "code"),
    [
        ("", "corrupted-diff"),
        ("@@ -1 +1 @@\n-a\n+b\n", "corrupted-diff"),
        ("--- a/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n", "corrupted-diff"),
        ("--- a/vllm/x.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "corrupted-diff"),
        ("--- a/vllm/x.py\n+++ b/vllm/y.py\n@@ -1 +1 @@\n-a\n+b\n", "corrupted-diff"),
        ("--- a/vllm/x.py\n+++ b/vllm/x.py\n", "corrupted-diff"),
        ("--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -x +1 @@\n-a\n+b\n", "corrupted-hunk"),
        ("--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n+c\n", "corrupted-hunk"),
        ("--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1,2 +1,2 @@\n-a\n+b\n", "corrupted-hunk"),
        ("--- a/torch/x.py\n+++ b/torch/x.py\n@@ -1 +1 @@\n-a\n+b\n", "unsafe-path"),
        ("--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\nrename from a\n", "corrupted-diff"),
    ],
)
def test_diffs_that_no_series_may_hold(diff: str, code: str) -> None:
    with pytest.raises(PatchRefused) as refused:
        parse(diff, "p")
    assert refused.value.code == code


@pytest.mark.parametrize("names", [("ten",), ("thirty",), ("ten", "thirty"), ("thirty", "ten", "cache")])
def test_any_choice_in_any_order_gives_the_sealed_files(names: tuple[str, ...], tree: Path) -> None:
    job = job_of(*names)
    result = apply_job(job, tree)
    assert result["changed"]
    for path, digests in job["files"].items():
        assert digest((tree / path).read_bytes()) == digests["patched"]
    assert verify_job(job, tree)["patches"] == list(names)


def test_a_second_run_changes_nothing(tree: Path) -> None:
    job = job_of("ten", "cache")
    apply_job(job, tree)
    before = snapshot(tree)
    assert not apply_job(job, tree)["changed"]
    assert snapshot(tree) == before


def test_a_plan_without_patches_leaves_the_tree_untouched(tree: Path) -> None:
    before = snapshot(tree)
    assert not apply_job(job_of(), tree)["changed"]
    assert snapshot(tree) == before
    assert verify_job(job_of(), tree)["patches"] == []


def test_a_patched_file_changed_afterwards_is_found(tree: Path) -> None:
    job = job_of("ten")
    apply_job(job, tree)
    (tree / "vllm/engine.py").write_text("x = 1\n")
    with pytest.raises(PatchRefused, match=r"changed-by-hand: vllm/engine\.py"):
        verify_job(job, tree)


def test_patches_where_the_plan_needs_none_are_found(tree: Path) -> None:
    apply_job(job_of("ten"), tree)
    with pytest.raises(PatchRefused, match="changed-by-hand"):
        verify_job(job_of(), tree)


def test_another_choice_needs_another_release(tree: Path) -> None:
    apply_job(job_of("ten"), tree)
    with pytest.raises(PatchRefused, match=r"half-applied: .* another job"):
        apply_job(job_of("ten", "cache"), tree)


def test_two_patches_on_the_same_lines_are_refused() -> None:
    hunk = Hunk(2, ("b\n",), ("c\n",))
    with pytest.raises(PatchRefused, match="overlapping-patches: one and two"):
        place_exactly("a\nb\n", [("one", hunk), ("two", hunk)], "vllm/x.py")


def test_an_error_while_writing_puts_everything_back(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(tree)
    replace = applier._replace

    def full(path: Path, data: bytes) -> None:
        if path.name == "cache.py" and b"size = 8" in data:
            raise OSError(28, "No space left on device")
        replace(path, data)

    monkeypatch.setattr(applier, "_replace", full)
    with pytest.raises(OSError, match="No space left"):
        apply_job(job_of("ten", "cache"), tree)
    assert snapshot(tree) == before


def test_files_shared_with_an_installer_s_cache_are_not_written_through(tree: Path, tmp_path: Path) -> None:
    cached = tmp_path / "cached.py"
    os.link(tree / "vllm/engine.py", cached)
    apply_job(job_of("ten"), tree)
    assert cached.read_text() == ENGINE


def test_stale_bytecode_goes_and_other_bytecode_stays(tree: Path) -> None:
    folder = tree / "vllm/__pycache__"
    folder.mkdir()
    for name in ("engine.cpython-312.pyc", "engines.cpython-312.pyc"):
        (folder / name).write_bytes(b"x")
    apply_job(job_of("ten"), tree)
    assert [path.name for path in folder.iterdir()] == ["engines.cpython-312.pyc"]


def test_another_series_follows_ours_and_may_bring_files(tree: Path) -> None:
    new = "--- /dev/null\n+++ b/vllm/quant/tiny.py\n@@ -0,0 +1,2 @@\n+BITS = 3\n+NAME = 'tiny'\n"
    moved = LATER  # written against the released file; ours has shifted it by a line
    apply_job(job_of("ten", extra=(("theirs/new.patch", new), ("theirs/moved.patch", moved))), tree)
    assert (tree / "vllm/quant/tiny.py").read_text() == "BITS = 3\nNAME = 'tiny'\n"
    assert "line30" not in (tree / "vllm/engine.py").read_text()


def test_a_hunk_that_fits_at_two_places_is_refused() -> None:
    file = parse("--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -9 +9 @@\n-a = 1\n+a = 2\n", "p")[0]
    with pytest.raises(PatchRefused, match="2 places"):
        place_uniquely("a = 1\nb = 1\na = 1\n", file, "p")


def test_the_program_on_the_host_speaks_json_and_words(tree: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.json"

    def run(job: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        path.write_text(json.dumps(job))
        command = [sys.executable, "-I", applier.__file__, "apply", str(path), str(tree)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run(job_of("ten"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["patches"] == ["ten"]
    refused = run(job_of("cache"))
    assert refused.returncode == REFUSED
    assert json.loads(refused.stdout)["refused"] == "half-applied"
    assert "vLLM was not patched" in refused.stderr


def test_a_missing_newline_at_the_end_is_kept() -> None:
    mark = "\\ No newline at end of file\n"
    diff = f"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n{mark}+b\n{mark}"
    hunk = parse(diff, "p")[0].hunks[0]
    assert place_exactly("a", [("p", hunk)], "vllm/x.py") == "b"


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n"]), min_size=1, max_size=30)


@given(text=LINES, data=st.data())
def test_what_was_placed_can_be_taken_back(text: list[str], data: st.DataObject) -> None:
    hunks, at = [], 0
    while at < len(text):
        size = data.draw(st.integers(1, 4))
        if data.draw(st.booleans()):
            new = data.draw(st.lists(st.sampled_from(["x\n", "y\n"]), max_size=3))
            hunks.append(Hunk(at + 1, tuple(text[at : at + size]), tuple(new)))
        at += size
    before = "".join(text)
    after = place_exactly(before, [("p", hunk) for hunk in hunks], "vllm/x.py")
    back = place_exactly(after, [("p", hunk) for hunk in reversed_hunks(hunks)], "vllm/x.py")
    assert back == before

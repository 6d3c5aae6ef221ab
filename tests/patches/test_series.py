"""The series as data: which plan needs what, other people's series, porting, and the generated page."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qwenlab.patches import document, manifest
from qwenlab.patches.applier import parse
from qwenlab.patches.checking import check, seal
from qwenlab.patches.cli import main
from qwenlab.patches.extra import ExtraSeriesError, read_series
from qwenlab.patches.job import make_job
from qwenlab.patches.manifest import SeriesError, diff, file_digests, load, releases
from qwenlab.patches.needs import UnknownPatch, chosen, needed, ordered
from qwenlab.patches.port import port
from qwenlab.planner.catalogue import checkpoints
from qwenlab.planner.plan import Checkpoint, EnginePlan, HostPlan, Speculation, Workload
from qwenlab.planner.rules.patches import RULES
from qwenlab.settings.patches import ExtraSeries

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
    tests: [tests/patches/test_series.py]
    sha256: '{"0" * 64}'
"""


def engine(**changes: Any) -> EnginePlan:
    values: dict[str, Any] = {
        "name": "main",
        "port": 8000,
        "gpus": (),
        "checkpoint": Checkpoint(repo="some/model", revision="0" * 40, format="fp8"),
        "kv_cache_dtype": "fp8",
        "attention_backend": None,
        "max_model_len": 1024,
        "max_num_seqs": 2,
        "args": {},
        "env": {},
    }
    return EnginePlan(**{**values, **changes})


def host_plan(vllm: str, *engines: EnginePlan) -> HostPlan:
    return HostPlan(status="planned", workload=Workload.CHAT, vllm=vllm, engines=engines)


DFLASH, MTP = Speculation(method="dflash", tokens=7), Speculation(method="mtp", tokens=3)
TOOLS = {"tool-call-close-truncated", "tool-call-nested-parameter-tag"}
PACKED = next(
    Checkpoint(repo=spec.repo, revision="0" * 40, format=spec.format)
    for spec in checkpoints().values()
    if "quantized-embedding" in spec.patches
)
NEEDS: dict[str, tuple[dict[str, Any], bool, set[str]]] = {
    "one card, no key, nothing special": ({}, False, set()),
    "a key": ({}, True, {"auth-deny-default"}),
    "tool calls": ({"args": {"enable-auto-tool-choice": True}}, False, TOOLS),
    "a pinned pool": ({"args": {"kv-cache-memory-bytes": 1}}, False, {"pinned-pool-release"}),
    "MTP on one card": ({"speculation": MTP}, False, {"gdn-state-bounds"}),
    "DFlash2 on one card": (
        {"speculation": DFLASH},
        False,
        {"kv-group-size", "dflash-fixed-block", "gdn-state-bounds"},
    ),
    "a pipeline": ({"pp": 2, "args": {"language-model-only": True}}, False, {"last-stage-embedding"}),
    "MTP over a pipeline": (
        {"pp": 2, "speculation": MTP},
        False,
        {"mtp-shared-embedding-pp", "pp-batch-cap", "last-stage-embedding", "gdn-state-bounds"},
    ),
    "DFlash2 over a pipeline": (
        {"pp": 2, "speculation": DFLASH},
        False,
        {
            "aux-hidden-states-over-pp",
            "kv-group-size",
            "dflash-fixed-block",
            "pp-batch-cap",
            "last-stage-embedding",
            "gdn-state-bounds",
        },
    ),
    "block FP8 on Hopper, which a planning rule knows": (
        {"patches": ("cutlass-rows-sm90",)},
        False,
        {"cutlass-rows-sm90"},
    ),
    "a packed embedding": ({"checkpoint": PACKED}, False, {"quantized-embedding"}),
}


@pytest.mark.parametrize(("changes", "keyed", "expected"), NEEDS.values(), ids=NEEDS)
def test_a_plan_gets_what_it_needs_and_no_more(changes: dict[str, Any], keyed: bool, expected: set[str]) -> None:
    assert set(needed(load("0.33.0"), engine(**changes), keyed=keyed)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"pp": 2}, {"vision-tower-first-stage"}),
        ({"pp": 2, "args": {"language-model-only": True}}, set()),
        ({"speculation": MTP}, {"sampler-warmup-cuda"}),
        ({"args": {"kv-offloading-size": 8}}, {"offload-lru-tail-first"}),
    ],
)
def test_the_older_release_needs_more(changes: dict[str, Any], expected: set[str]) -> None:
    added = set(load("0.32.0").ids) - set(load("0.33.0").ids)
    assert set(needed(load("0.32.0"), engine(**changes), keyed=False)) & added == expected


def test_a_release_carries_what_any_of_its_engines_needs_in_series_order() -> None:
    plan = host_plan("0.33.0", engine(speculation=DFLASH), engine(name="second", patches=("auth-deny-default",)))
    found = chosen(load("0.33.0"), plan, keyed=False)
    assert found == ("kv-group-size", "auth-deny-default", "dflash-fixed-block", "gdn-state-bounds")


def test_every_patch_that_a_planning_rule_names_is_in_a_series() -> None:
    known = {name for vllm in releases() for name in load(vllm).ids}
    named = {name for rule in RULES for name in rule.sets} - {"additional-config"}
    assert named == known - {"offload-lru-tail-first"}, "no rule plans a CPU tier; it is for those who set one"


def test_a_plan_that_names_an_unknown_patch_is_not_deployed() -> None:
    plan = host_plan("0.33.0", engine(patches=("kv-dtype-of-another",)))
    with pytest.raises(UnknownPatch, match="kv-dtype-of-another"):
        chosen(load("0.33.0"), plan, keyed=False)


def test_a_plan_that_needs_none_leaves_the_release_untouched() -> None:
    assert chosen(load("0.33.0"), host_plan("0.33.0", engine()), keyed=False) == ()


def test_the_jobs_digest_covers_the_choice_and_not_the_order_it_is_named_in() -> None:
    one, two = make_job("0.33.0", ["kv-group-size"]), make_job("0.33.0", ["kv-group-size", "auth-deny-default"])
    assert one["digest"] != two["digest"]
    assert two["digest"] == make_job("0.33.0", ["auth-deny-default", "kv-group-size"])["digest"]


@pytest.mark.parametrize("vllm", releases())
def test_manifest_and_diffs_belong_together(vllm: str) -> None:
    series = load(vllm)
    assert ordered(series, series.ids) == series.ids
    digests = file_digests(vllm)
    for patch in series.patches:
        files = parse(diff(vllm, patch), patch.id)
        assert sorted(file.path for file in files) == sorted(patch.files)
        assert all(patch.id in digests[path].patched for path in patch.files)
        for test in patch.tests:
            assert (Path(__file__).parents[2] / test.partition("::")[0]).is_file()


def test_a_diff_changed_after_sealing_is_refused(series: Path) -> None:
    (series / "9.9.0/edit.patch").write_text(EDIT.replace("33", "34"))
    with pytest.raises(SeriesError, match=r"edit\.patch: the SHA-256"):
        diff("9.9.0", load("9.9.0", series).patches[0], series)


def test_the_page_is_generated_from_the_manifests() -> None:
    assert document.PATH.read_text() == document.render(), "run `python -m qwenlab patches document --write`"


@pytest.mark.parametrize("vllm", releases())
def test_list_and_explain_know_every_patch(vllm: str, capsys: pytest.CaptureFixture[str]) -> None:
    for patch in load(vllm).patches:
        assert main(["explain", patch.id, "--vllm", vllm]) == 0
        assert patch.breaks_without in capsys.readouterr().out
    assert main(["list", "--vllm", vllm]) == 0
    assert main(["explain", "no-such-patch"]) == 1
    assert "no patch 'no-such-patch'" in capsys.readouterr().err


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


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    (folder / "kv").mkdir(parents=True)
    (folder / "series").write_text("# theirs\nkv/one.patch\n")
    (folder / "kv/one.patch").write_text(EDIT)
    (folder / "notes.txt").write_text("not part of it")
    return folder


def folder_sha(folder: Path) -> str:
    """As the documentation says to compute it."""
    names = ("series", "kv/one.patch")
    lines = "".join(f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def test_another_series_is_read_from_a_folder_with_its_digest(theirs: Path) -> None:
    found = read_series(ExtraSeries(source=str(theirs), sha256=folder_sha(theirs)))
    assert [(patch.name, patch.diff) for patch in found] == [("theirs/kv/one.patch", EDIT)]
    (theirs / "notes.txt").write_text("may change")
    assert read_series(ExtraSeries(source=str(theirs), sha256=folder_sha(theirs))) == found


def test_another_series_is_read_from_an_archive_with_its_digest(theirs: Path, tmp_path: Path) -> None:
    path = tmp_path / "kv.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(theirs, "kv-1.0")
    found = read_series(ExtraSeries(source=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest()))
    assert [patch.diff for patch in found] == [EDIT]


def wrong_digest(folder: Path) -> ExtraSeries:
    return ExtraSeries(source=str(folder), sha256="0" * 64)


def no_order(folder: Path) -> ExtraSeries:
    return ExtraSeries(source=str(folder), sha256=folder_sha(folder), order="list")


def missing_diff(folder: Path) -> ExtraSeries:
    sha = folder_sha(folder)
    (folder / "kv/one.patch").unlink()
    return ExtraSeries(source=str(folder), sha256=sha)


def broken_diff(folder: Path) -> ExtraSeries:
    (folder / "kv/one.patch").write_text("no diff\n")
    return ExtraSeries(source=str(folder), sha256=folder_sha(folder))


def outside(folder: Path) -> ExtraSeries:
    (folder / "kv/one.patch").write_text(EDIT.replace("vllm/", "vllm/../torch/"))
    return ExtraSeries(source=str(folder), sha256=folder_sha(folder))


def no_archive(folder: Path) -> ExtraSeries:
    path = folder / "notes.txt"
    return ExtraSeries(source=str(path), sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def nowhere(folder: Path) -> ExtraSeries:
    return ExtraSeries(source=str(folder / "absent.zip"), sha256="0" * 64)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (wrong_digest, "SHA-256 of order file and diffs is"),
        (no_order, "has no order file 'list'"),
        (missing_diff, "lists kv/one.patch, which is not there"),
        (broken_diff, "theirs/kv/one.patch: no hunks"),
        (outside, "does not lie below vllm/"),
        (no_archive, "neither a tar nor a zip archive"),
        (nowhere, "No such file"),
    ],
)
def test_another_series_is_refused_in_words(make: Callable[[Path], ExtraSeries], words: str, theirs: Path) -> None:
    with pytest.raises(ExtraSeriesError) as refused:
        read_series(make(theirs))
    assert words in str(refused.value)


def test_nothing_is_fetched_without_its_digest() -> None:
    with pytest.raises(ValueError, match="sha256"):
        ExtraSeries.model_validate({"source": "https://example.org/kv.tar.gz"})


def test_an_archive_with_another_digest_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "kv.tar"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w"):
        pass
    path.write_bytes(buffer.getvalue())
    with pytest.raises(ExtraSeriesError, match="SHA-256 is"):
        read_series(ExtraSeries(source=str(path), sha256="0" * 64))

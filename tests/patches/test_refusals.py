"""What is refused by name with nothing changed: by `patches check`, and by the program that patches on a host."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from qwenlab.patches import applier, manifest
from qwenlab.patches.applier import REFUSED, digest
from qwenlab.patches.checking import seal
from qwenlab.patches.cli import main
from qwenlab.patches.job import make_job
from qwenlab.patches.manifest import load

VLLM = "9.9.0"
STOCK = "a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n"
PATCHED = STOCK.replace("c = 3", "c = 33")
NAMES = ("one", "two")


def diff_of(name: str) -> str:
    path = f"vllm/{name}.py"
    return f"--- a/{path}\n+++ b/{path}\n@@ -2,3 +2,3 @@\n b = 2\n-c = 3\n+c = 33\n d = 4\n"


def entry(name: str) -> str:
    return f"""\
  - id: {name}
    title: An edit
    kind: fix
    files: [vllm/{name}.py]
    breaks_without: it
    upstream: none
    needed_when:
      text: always
    retire_when: never
    tests: [tests/patches/test_refusals.py]
    sha256: '{"0" * 64}'
"""


@dataclass(frozen=True)
class Setting:
    """A release of two files, and a sealed series of one patch for each."""

    tree: Path
    series: Path

    def files(self) -> dict[str, bytes]:
        """All that a refusal must leave as it is."""
        found = (path for root in (self.tree, self.series) for path in root.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in found}

    def change_diff(self, old: str, new: str) -> None:
        """Change the first patch, its digest in the manifest made right again."""
        path, listed = self.series / VLLM / "one.patch", self.series / VLLM / "series.yaml"
        before, after = path.read_text(), path.read_text().replace(old, new)
        assert before != after
        path.write_text(after)
        listed.write_text(listed.read_text().replace(digest(before.encode()), digest(after.encode())))
        load.cache_clear()


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    found = Setting(tmp_path / "tree", tmp_path / "series")
    (found.tree / "vllm").mkdir(parents=True)
    (found.tree / "vllm/_version.py").write_text(f"__version__ = version = '{VLLM}'\n")
    (found.series / VLLM).mkdir(parents=True)
    for name in NAMES:
        (found.tree / f"vllm/{name}.py").write_text(STOCK)
        (found.series / VLLM / f"{name}.patch").write_text(diff_of(name))
    (found.series / VLLM / "series.yaml").write_text(f"vllm: {VLLM}\npatches:\n" + "".join(map(entry, NAMES)))
    monkeypatch.setattr(manifest, "series_root", lambda: found.series)
    for cached in (load, manifest.file_digests):
        cached.cache_clear()
    seal(VLLM, found.tree, found.series)
    yield found
    for cached in (load, manifest.file_digests):
        cached.cache_clear()


def corrupted_hunk(setting: Setting) -> None:
    setting.change_diff("+c = 33\n", "")


def moved_context(setting: Setting) -> None:
    setting.change_diff(" b = 2\n", " b = 22\n")


def half_applied(setting: Setting) -> None:
    (setting.tree / "vllm/one.py").write_text(PATCHED)


def patched_by_hand(setting: Setting) -> None:
    (setting.tree / "vllm/one.py").write_text(STOCK.replace("c = 3", "c = 3.3"))


def wrong_version(setting: Setting) -> None:
    (setting.tree / "vllm/_version.py").write_text("__version__ = version = '9.8.0'\n")


REFUSALS: dict[str, tuple[Callable[[Setting], None], str, str]] = {
    # what is wrong: (made so, the refusal's name, what it names)
    "a corrupted hunk": (corrupted_hunk, "corrupted-hunk", "one"),
    "a moved context": (moved_context, "moved-context", "one"),
    "a half-applied tree": (half_applied, "half-applied", "vllm/one.py"),
    "a tree patched by hand": (patched_by_hand, "changed-by-hand", "vllm/one.py"),
    "a wrong version": (wrong_version, "wrong-version", "9.8.0"),
}


@pytest.mark.parametrize(("make", "code", "named"), REFUSALS.values(), ids=REFUSALS)
def test_the_command_refuses(
    make: Callable[[Setting], None], code: str, named: str, setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    make(setting)
    before = setting.files()
    assert main(["check", "--vllm", VLLM, "--tree", str(setting.tree)]) == 1
    said = capsys.readouterr().err
    assert f"{code}: " in said
    assert named in said.partition(f"{code}: ")[2]
    assert setting.files() == before


@pytest.mark.parametrize(("make", "code", "named"), REFUSALS.values(), ids=REFUSALS)
def test_the_program_on_the_host_refuses(
    make: Callable[[Setting], None], code: str, named: str, setting: Setting, tmp_path: Path
) -> None:
    make(setting)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(make_job(VLLM, NAMES)))
    before = setting.files()
    command = [sys.executable, "-I", applier.__file__, "apply", str(path), str(setting.tree)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == REFUSED, done.stderr
    said = json.loads(done.stdout)
    assert said["refused"] == code
    assert named in said["text"]
    assert setting.files() == before


def test_an_untouched_setting_is_not_refused(setting: Setting, tmp_path: Path) -> None:
    assert main(["check", "--vllm", VLLM, "--tree", str(setting.tree)]) == 0
    path = tmp_path / "job.json"
    path.write_text(json.dumps(make_job(VLLM, NAMES)))
    command = [sys.executable, "-I", applier.__file__, "apply", str(path), str(setting.tree)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert (setting.tree / "vllm/two.py").read_text() == PATCHED


@pytest.mark.parametrize("words", [["list", "--vllm", "9"], ["explain", "one", "--vllm", "9"], ["list", "--vllm", ""]])
def test_a_release_without_a_series_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert f"no patch series for vLLM {words[-1]}; there is one for 0.33.0" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["check", "--vllm", "9"], ["seal", "--vllm", "9"], ["port", "9", "0.33.0"]])
def test_it_is_named_before_anything_is_fetched(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: object) -> Path:
        raise AssertionError("a wheel was fetched")

    monkeypatch.setattr("qwenlab.patches.trees._download", fetch)
    assert main(words) == 1
    assert "no patch series for vLLM 9;" in capsys.readouterr().err

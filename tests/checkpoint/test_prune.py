"""Pruning takes revisions that nobody uses, and never anything else."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from qwenlab.operations import checkpoint
from qwenlab.remote.checkpoint import manifest, prune
from qwenlab.remote.checkpoint.files import FileEntry
from qwenlab.remote.checkpoint.manifest import Manifest
from qwenlab.settings import load
from tests.checkpoint.fetching import ROOT
from tests.operations.fake import commands

OLD, NEW = "1" * 40, "2" * 40


class Disk:
    """A host's directories."""

    def __init__(self, root: Path) -> None:
        self.models, self.generations, self.etc, self.proc = (
            root / name for name in ("models", "generations", "etc", "proc")
        )
        for path in (self.models, self.generations, self.etc, self.proc):
            path.mkdir()

    def revision(self, name: str, repo: str = "lab/tiny") -> Path:
        directory = self.models / repo / name
        directory.mkdir(parents=True)
        (directory / "model.safetensors").write_bytes(b"x" * 10_000)
        manifest.write(directory, Manifest(repo, name, (FileEntry("model.safetensors", 10_000),), "a test"))
        return directory

    def process(self, number: int, **files: str) -> Path:
        directory = self.proc / str(number)
        (directory / "fd").mkdir(parents=True)
        for name, text in files.items():
            (directory / name).write_text(text)
        return directory

    def remove(self, *paths: Path) -> subprocess.CompletedProcess[str]:
        """The program as a host runs it, among the processes that there really are."""
        places = [str(path) for path in (self.models, self.generations, self.etc)]
        command = [sys.executable, "-B", "-m", "qwenlab.remote.checkpoint.prune", *places, "remove"]
        given = json.dumps([str(path) for path in paths])
        return subprocess.run(command, cwd=ROOT, input=given, text=True, capture_output=True, check=False)

    def unused(self) -> list[Path]:
        return [one.path for one in prune.unused(self.models, self.generations, self.etc, self.proc)]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """An empty host."""
    return Disk(tmp_path)


def test_a_revision_that_nobody_names_is_unused(disk: Disk) -> None:
    old, new = disk.revision(OLD), disk.revision(NEW)
    (disk.etc / "plan.json").write_text(json.dumps({"checkpoint": {"repo": "lab/tiny", "revision": NEW}}))
    assert disk.unused() == [old]
    assert new.exists()


@pytest.mark.parametrize("user", ["plan", "engine file", "kept generation", "command line", "mapped", "open file"])
def test_each_kind_of_use_keeps_a_revision(disk: Disk, user: str) -> None:
    used = disk.revision(OLD)
    if user == "plan":
        (disk.etc / "plan.json").write_text(f'{{"revision": "{OLD}"}}')
    elif user == "engine file":
        (disk.etc / "engines").mkdir()
        (disk.etc / "engines" / "e.yaml").write_text(f"model: {used}\n")
    elif user == "kept generation":
        kept = disk.generations / "before" / "files" / "etc" / "qwen"
        kept.mkdir(parents=True)
        (kept / "plan.json").write_text(json.dumps({"checkpoint": {"repo": "lab/tiny", "revision": OLD}}))
    elif user == "command line":
        disk.process(7, cmdline=f"vllm\0serve\0{used}\0")
    elif user == "mapped":
        disk.process(7, maps=f"7f00-7fff r--p 0 0 1 {used}/model.safetensors\n")
    else:
        (disk.process(7) / "fd" / "3").symlink_to(used / "model.safetensors")
    assert disk.unused() == []


def test_what_a_prepared_checkpoint_in_use_was_made_from_is_kept(disk: Disk) -> None:
    disk.revision(OLD)
    disk.revision(f"{OLD}.int8-heads")
    (disk.etc / "plan.json").write_text(json.dumps({"revision": OLD, "preparation": "int8-heads"}))
    assert disk.unused() == []


def test_a_branch_in_a_plan_keeps_the_commit_that_it_was_resolved_to(disk: Disk) -> None:
    used, old = disk.revision(NEW), disk.revision(OLD)
    (disk.models / "lab/tiny/main").symlink_to(NEW)
    (disk.etc / "plan.json").write_text(json.dumps({"repo": "lab/tiny", "revision": "main"}))
    assert disk.unused() == [old]
    assert used.exists()


def test_a_fetch_under_way_is_left_alone(disk: Disk) -> None:
    fetched = disk.revision(OLD)
    (fetched / manifest.NAME).unlink()
    (fetched / "model.safetensors.incomplete").write_bytes(b"x")
    with (fetched.parent / f".{OLD}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert disk.unused() == []
    assert disk.unused() == [fetched]


def test_what_qwenlab_did_not_make_is_never_touched(disk: Disk) -> None:
    for name in ("someone/elses/directory", f"someone/elses/{OLD}", "file"):
        (disk.models / name).mkdir(parents=True)
        (disk.models / name / "precious").write_text("x")
    assert disk.unused() == []
    assert disk.remove(disk.models / "someone/elses" / OLD).returncode == 1
    assert disk.remove(Path("/etc")).returncode == 1
    assert (disk.models / "someone/elses" / OLD / "precious").exists()


def test_removal_takes_links_and_empty_directories_along_and_keeps_shared_files(
    disk: Disk,
) -> None:
    old, new = disk.revision(OLD, "a/gone"), disk.revision(NEW, "b/kept")
    (old.parent / "main").symlink_to(OLD)
    os.unlink(new / "model.safetensors")
    os.link(old / "model.safetensors", new / "model.safetensors")
    (disk.etc / "plan.json").write_text(f'"{NEW}"')
    (one,) = prune.unused(disk.models, disk.generations, disk.etc, disk.proc)
    assert one.bytes < 10_000  # the shared file frees nothing
    done = disk.remove(old)
    assert (done.returncode, done.stdout) == (0, f"removed {old}\n")
    assert not (disk.models / "a").exists()
    assert (new / "model.safetensors").read_bytes() == b"x" * 10_000


def test_what_came_into_use_meanwhile_stays_and_the_others_go(disk: Disk) -> None:
    old, new = disk.revision(OLD), disk.revision(NEW)
    with (new / "model.safetensors").open("rb"):
        done = disk.remove(new, old)
    assert done.returncode == 1
    assert f"{new} was not removed: it is used now" in done.stderr
    assert not old.exists()
    assert new.exists()


def test_the_play_names_what_it_removes_and_touches_nothing_when_all_is_used() -> None:
    settings = load({"qwen_engine": "cpu", "qwen_cpu_checkpoint": "lab/tiny", "qwen_cpu_revision": NEW})
    path = f"/srv/qwen/models/lab/tiny/{OLD}"
    found = json.dumps([{"path": path, "bytes": 5_000_000, "whole": True}])
    ((command, given),) = commands(checkpoint.prune, {"checkpoint.prune": [found]}, settings=settings)
    assert command.endswith("prune /srv/qwen/models /var/lib/qwenlab/generations /etc/qwen remove")
    assert json.loads(given) == [path]
    assert commands(checkpoint.prune, {"checkpoint.prune": ["[]"]}, settings=settings) == []

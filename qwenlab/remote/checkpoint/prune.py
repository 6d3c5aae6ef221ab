"""`python -m qwenlab.remote.checkpoint.prune MODELS GENERATIONS ETC [remove]`: revisions that nobody uses.

Without `remove` it prints them as JSON and changes nothing. With it, it takes a JSON list of paths from stdin (on a
command line they would be in use by the commands themselves) and removes those, each only if it is still unused. Used
is what the plan or engine files name, in ETC or in the generations that a rollback brings back (releases themselves
name no checkpoint), what a running process names or holds open, what another checkpoint in use was prepared from, and
what is being fetched. Nothing but directories of ours (`<owner>/<name>/<revision>` with a manifest or a journal) and
links to them is ever looked at. Standard library alone.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from qwenlab.remote.checkpoint import manifest

REVISION = re.compile(r"[0-9a-f]{40}(\.[a-z0-9-]+)?")
TEXTS = (
    # files below /etc/qwen, present or kept, that may name a checkpoint
    "*.json",
    "*.yaml",
    "*.env",
)
OF_PROCESS = ("cmdline", "environ", "maps")


@dataclass(frozen=True)
class Revision:
    """A checkpoint on disk: bytes that its removal frees (files with another link free nothing), and whether whole."""

    path: Path
    bytes: int
    whole: bool


def revisions(models: Path) -> Iterator[Revision]:
    """Every directory that a fetch or a preparation made."""
    for path in sorted(models.glob("*/*/*")):
        if path.is_symlink() or not path.is_dir() or REVISION.fullmatch(path.name) is None:
            continue
        whole = (path / manifest.NAME).is_file()
        if (
            whole
            or (path / manifest.JOURNAL).is_file()
            or any(path.glob("*.incomplete"))
            or any(path.glob("*.partial"))
        ):
            yield Revision(path, freed(path), whole)


def freed(directory: Path) -> int:
    """Bytes that removing a directory gives back: files whose links all lie in it."""
    states = [path.lstat() for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return sum(state.st_blocks * 512 for state in states if state.st_nlink == 1)


def named_texts(etc: Path, generations: Path, proc: Path) -> Iterator[str]:
    """All texts in which a checkpoint that is used would be named."""
    for folder in (etc, generations):
        for pattern in TEXTS:
            for path in folder.rglob(pattern):
                with suppress(OSError):
                    yield path.read_text(errors="replace")
    for process in proc.glob("[0-9]*"):
        for name in OF_PROCESS:
            with suppress(OSError):
                yield (process / name).read_text(errors="replace")
        with suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with suppress(OSError):
                    yield str(descriptor.readlink())


def unused(models: Path, generations: Path, etc: Path, proc: Path = Path("/proc")) -> list[Revision]:
    """The revisions that nobody names. A plan that names a branch uses the commit that the branch's link points to."""
    known = list(revisions(models))
    names = {one.path: one.path.name.split(".")[0] for one in known}
    marks: dict[Path, set[str]] = {one.path: {str(one.path), names[one.path]} for one in known}
    for link in models.glob("*/*/*"):
        if link.is_symlink() and (target := link.parent / link.readlink()) in marks:
            marks[target] |= {str(link), f'"{link.parent.relative_to(models)}"'}
    used: set[Path] = set()
    for text in named_texts(etc, generations, proc):
        used |= {path for path, words in marks.items() if any(word in text for word in words)}
    return [one for one in known if one.path not in used and not being_fetched(one.path)]


def being_fetched(path: Path) -> bool:
    """Whether a fetch holds the lock of a revision, or of the one that it is prepared from."""
    for name in {path.name, path.name.split(".")[0]}:
        lock = path.parent / f".{name}.lock"
        if lock.exists():
            with lock.open("r") as handle:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
    return False


def remove(one: Revision, models: Path) -> None:
    """Remove a revision: first what makes it count, then the links to it, then its files."""
    manifest.withdraw(one.path)
    for link in one.path.parent.iterdir():
        if link.is_symlink() and link.parent / link.readlink() == one.path:
            link.unlink()
    shutil.rmtree(one.path)
    with suppress(OSError):
        (one.path.parent / f".{one.path.name}.lock").unlink()
    for parent in (one.path.parent, one.path.parent.parent):
        if parent != models:
            with suppress(OSError):  # not empty: other revisions are there
                parent.rmdir()


def main(arguments: list[str]) -> int:
    """List, or remove what is named."""
    models, generations, etc = (Path(argument) for argument in arguments[:3])
    found = unused(models, generations, etc)
    if arguments[3:] != ["remove"]:
        print(json.dumps([{"path": str(one.path), "bytes": one.bytes, "whole": one.whole} for one in found]))
        return 0
    by_path = {one.path: one for one in found}
    wanted = [Path(name) for name in json.load(sys.stdin)]
    for path in wanted:
        if path in by_path:
            remove(by_path[path], models)
            print(f"removed {path}")
        else:
            print(f"{path} was not removed: it is used now, or is no checkpoint of qwenlab", file=sys.stderr)
    return 0 if all(path in by_path for path in wanted) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

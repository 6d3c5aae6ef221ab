"""Where the lab keeps what is worth keeping (images, wheels) and what it throws away (the hosts' disks)."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_directory() -> Path:
    """`$QWENLAB_LAB_CACHE`, or `~/.cache/qwenlab/lab`; created when missing."""
    named = os.environ.get("QWENLAB_LAB_CACHE")
    directory = Path(named) if named else Path.home() / ".cache/qwenlab/lab"
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path` among all processes; released by the kernel when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build_once(target: Path, build: Callable[[Path], None]) -> Path:
    """`target`, built by `build(empty directory)` unless it is there: complete or absent, never half-built.

    Builders of the same target wait for each other. What a killed builder left is removed by the next one.
    """
    if target.exists():
        return target
    with locked(target.with_suffix(".lock")):
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            try:
                build(partial)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
            partial.rename(target)
    return target

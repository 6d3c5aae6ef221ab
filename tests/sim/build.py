"""Compiles src/ into libnvidia-ml.so.1 and nvidia-smi, once per state of the sources (gcc and libc headers needed)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-format-truncation")
SHARED = ("store.c", "sim.c", "text.c")


@dataclass(frozen=True)
class Programs:
    """The two programs, built for this machine's architecture and C library."""

    library: Path
    smi: Path


def programs() -> Programs:
    """Build what is not built yet; several test runs may ask at once. Raises CalledProcessError with gcc's words."""
    folder = _cache() / _digest()
    built = Programs(folder / "libnvidia-ml.so.1", folder / "nvidia-smi")
    if folder.is_dir():
        return built
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return built
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            work = Path(scratch) / "out"
            work.mkdir()
            _compile(work / built.library.name, "nvml_*.c", "-shared", "-fPIC", "-fvisibility=hidden")
            _compile(work / built.smi.name, "smi*.c", libraries=("-lm", "-ldl"))
            work.rename(folder)
    return built


def _compile(output: Path, pattern: str, *flags: str, libraries: tuple[str, ...] = ()) -> None:
    sources = [*SHARED, *sorted(path.name for path in SOURCES.glob(pattern))]
    soname = ("-Wl,-soname,libnvidia-ml.so.1",) if "-shared" in flags else ()
    command = ["gcc", *FLAGS, *flags, *soname, "-o", str(output), *sources, *libraries, "-pthread"]
    done = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)


def _digest() -> str:
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "qwenlab" / "sim"

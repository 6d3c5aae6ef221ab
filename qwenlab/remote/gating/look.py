"""One look at the host for one engine, and what it may find."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ETC = Path("/etc/qwen")
CONFIG, TEMPORARY = 78, 75  # EX_CONFIG and EX_TEMPFAIL of sysexits.h
SMI_LIMIT_S = 60


@dataclass(frozen=True)
class Problem:
    """Why the engine may not start.

    Attributes:
        text: words for its owner.
        code: whether waiting may help.
        mute: the engine's own process cannot tell it, since it cannot be run.
    """

    text: str
    code: int = CONFIG
    mute: bool = False


def ask_smi(*arguments: str) -> tuple[int, list[list[str]]]:
    """nvidia-smi's exit code and CSV rows; 127 when the program is missing, 124 when it does not end."""
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_LIMIT_S, check=False)
    except FileNotFoundError:
        return 127, []
    except subprocess.TimeoutExpired:
        return 124, []
    return done.returncode, [[cell.strip() for cell in row.split(",")] for row in done.stdout.splitlines() if row]


@dataclass
class Gate:
    """One look at the host for one engine.

    Attributes:
        asked: content of the gate file, see `qwenlab.service.gate_file`.
        etc, proc: where configuration and procfs lie.
        smi: asks nvidia-smi.
    """

    asked: dict[str, Any]
    etc: Path = ETC
    proc: Path = Path("/proc")
    module: Path = Path("/sys/module/nvidia/version")
    smi: Callable[..., tuple[int, list[list[str]]]] = ask_smi

    @property
    def cards(self) -> list[str]:
        """UUIDs of the engine's cards in rank order."""
        return list(self.asked.get("cards", []))


Check = Callable[[Gate], Iterator[Problem]]


def describe(proc: Path, process: str) -> str:
    """`process 12 (python3, user 1000)`."""
    try:
        name = (proc / process / "comm").read_text().strip()
        return f"process {process} ({name}, user {(proc / process).stat().st_uid})"
    except OSError:
        return f"process {process} (gone, or of another container)"

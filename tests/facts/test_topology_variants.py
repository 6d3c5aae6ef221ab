"""Every matrix of the corpus again, damaged in the ways that pasting and terminals damage it.

Whatever is read must be what the undamaged text says; what cannot be read is left out or refused, with words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from qwenlab.facts.readings import ParseError
from qwenlab.facts.topology import Topology, parse_topology
from tests.facts.hosts import CORPUS, expected, recording_of

SOUND = [path for path in CORPUS if recording_of(path).text("topo") and expected(path)["parse"] == "ok"]


def matrix(path: Path) -> str:
    return recording_of(path).captures["topo"]


def each_line(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(line) for line in text.split("\n"))


def wrapped(line: str) -> str:
    """As an 80-column terminal breaks it."""
    return "\n".join(line[start : start + 80] for start in range(0, max(len(line), 1), 80))


HARMLESS: dict[str, Callable[[str], str]] = {
    "indented": each_line(lambda line: "    " + line),
    "quoted as markdown": each_line(lambda line: "  " + line + "  "),
    "carriage returns": each_line(lambda line: line + "\r"),
    "underlined header": lambda text: re.sub(r"^(\s*)(GPU0.*)$", "\\1\x1b[4m\\2\x1b[0m", text, count=1, flags=re.M),
    "expanded tabs": lambda text: text.expandtabs(8),
    "after a prompt": lambda text: "user@host:~$ nvidia-smi topo -m\n" + text,
    "quoted in an answer": each_line(lambda line: f"> {line}"),
    "in a log": each_line(lambda line: f"2026-11-30T10:11:12.345Z stdout F {line}"),
    "in a pod's log": each_line(lambda line: f"[pod/qwen-0] {line}"),
    "with a legend in other words": lambda text: text.replace("Legend:", "\u56fe\u4f8b\uff1a"),
    "before the next command": lambda text: text.split("\n\n")[0] + "\nuser@host:~$ nvidia-smi -L\nGPU 0: a card\n",
}
HARMFUL: dict[str, Callable[[str], str]] = {
    "wrapped at 80 columns": lambda text: each_line(wrapped)(text.expandtabs(8)),
    "padded at 80 columns": lambda text: each_line(
        lambda line: line[:80] + " " * 170 + line[80:] if len(line) > 80 else line
    )(text.expandtabs(8)),
    "last row cut": lambda text: text[: text.rindex("GPU") + 12],
}


def facts(topology: Topology) -> tuple[object, ...]:
    return topology.gpus, topology.nics, topology.pairs, topology.numa_affinity


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_harmless_changes_change_nothing(path: Path) -> None:
    whole = parse_topology(matrix(path))
    for name, change in HARMLESS.items():
        assert facts(parse_topology(change(matrix(path)))) == facts(whole), name


@pytest.mark.parametrize("path", SOUND, ids=lambda path: path.stem)
def test_harmful_changes_are_told(path: Path) -> None:
    whole = parse_topology(matrix(path))
    known = {(pair.a, pair.b): pair for pair in whole.pairs}
    for name, change in HARMFUL.items():
        text = change(matrix(path))
        try:
            topology = parse_topology(text)
        except ParseError:
            continue
        assert all(known.get((pair.a, pair.b)) == pair for pair in topology.pairs), name
        assert topology.gpus == whole.gpus, name
        missing = len(topology.pairs) < len(whole.pairs)
        assert topology.damage or not missing, name

"""Cut and mutilated output: parsers raise `ParseError` or nothing, and a wrong card count is never silent."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.kernel_log import parse_kernel_log
from qwenlab.facts.nvml_dump import parse_nvml
from qwenlab.facts.pci import parse_lspci, parse_sysfs
from qwenlab.facts.procfs import parse_proc_gpus
from qwenlab.facts.readings import ParseError, Reading
from qwenlab.facts.recording import Recording, from_output
from qwenlab.facts.smi_query import parse_query
from qwenlab.facts.smi_report import parse_report
from qwenlab.facts.smi_table import parse_list, parse_table
from qwenlab.facts.smi_xml import parse_xml
from qwenlab.facts.topology import parse_peer_matrix, parse_topology
from qwenlab.host_inventory import ParseState
from tests.facts.hosts import H200_PAIR
from tests.facts.test_nvidia_smi import REPORT
from tests.facts.test_pci import ROOT, card

XML = (H200_PAIR / "smi.xml").read_text()
BOX = (H200_PAIR / "smi.txt").read_text()
TOPO = (H200_PAIR / "topo.txt").read_text()
LIST = "".join(f"GPU {i}: NVIDIA H200 (UUID: GPU-0000000{i}-0000-0000-0000-000000000000)\n" for i in range(2))
QUERY = "index, name, memory.total [MiB]\n0, NVIDIA H200, 143771 MiB\n1, NVIDIA H200, 143771 MiB\n"
PEERS = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n\nLegend:\n\n  X    = Self\n"
PCI = card("0000:01:00.0", ROOT) + card("0000:02:00.0", ROOT)
NVML = (
    '{"count": 2, "cuda_version": 13000, "driver_version": "580.1", "devices": ['
    '{"index": 0, "uuid": "GPU-0", "memory": {"total": 1048576}, "nvlinks": []},'
    '{"index": 1, "uuid": "GPU-1", "memory": {"error": "NVMLError_NotSupported", "code": 3}, "nvlinks": []}],'
    '"pairs": [{"a": 0, "b": 1, "ancestor": 30, "peer_read": 0, "peer_write": 0}]}'
)
PARSERS: dict[str, tuple[Callable[[str], object], str]] = {
    "smi_xml": (parse_xml, XML),
    "smi_table": (parse_table, BOX),
    "smi_list": (parse_list, LIST),
    "smi_report": (parse_report, REPORT),
    "smi_query": (parse_query, QUERY),
    "topo": (parse_topology, TOPO),
    "p2p_read": (parse_peer_matrix, PEERS),
    "nvml": (parse_nvml, NVML),
    "pci": (parse_sysfs, PCI),
    "lspci": (parse_lspci, "21:00.0 3D controller: NVIDIA Corporation (rev ff)\n"),
    "kernel": (parse_kernel_log, "NVRM: Xid (PCI:0000:61:00): 119, pid=4242\n"),
    "proc_gpus": (parse_proc_gpus, "Model: \t NVIDIA H200\nGPU UUID: \t GPU-x\nBus Location: \t 0000:00:06.0\n"),
    "output": (from_output, f"@@@qwenlab topo 0\n{TOPO}\n@@@qwenlab end\n"),
}


@st.composite
def mutilated(draw: st.DrawFn) -> tuple[str, str]:
    """One source's text with cut ends, lost, doubled or swapped lines, and foreign characters."""
    name = draw(st.sampled_from(sorted(PARSERS)))
    text = PARSERS[name][1]
    for _ in range(draw(st.integers(1, 4))):
        lines = text.split("\n")
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(("cut", "drop", "double", "swap", "insert", "garble", "join")))
        if kind == "cut":
            text = text[: draw(st.integers(0, len(text)))]
            continue
        if kind == "drop":
            lines.pop(at)
        elif kind == "double":
            lines.insert(at, lines[at])
        elif kind == "swap":
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
        elif kind == "insert":
            lines.insert(at, draw(st.text(max_size=30)))
        elif kind == "garble":
            middle = draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:middle] + draw(st.text(max_size=6)) + lines[at][middle + 1 :]
        elif at + 1 < len(lines):
            lines[at : at + 2] = [lines[at] + lines[at + 1]]
        text = "\n".join(lines)
    return name, text


@settings(max_examples=200, deadline=None)
@given(mutilated())
def test_nothing_but_the_documented_error(sample: tuple[str, str]) -> None:
    name, text = sample
    try:
        PARSERS[name][0](text)
    except ParseError:
        return


@settings(max_examples=80, deadline=None)
@given(st.lists(mutilated(), min_size=1, max_size=4))
def test_an_inventory_comes_out_of_everything(samples: list[tuple[str, str]]) -> None:
    inventory = build_inventory(Recording(dict(samples)))
    assert len({gpu.index for gpu in inventory.gpus}) == len(inventory.gpus)
    assert all(gpu.usable == (gpu.unusable_because is None) for gpu in inventory.gpus)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(PARSERS)), st.text(max_size=200))
def test_any_text_is_parsed_or_refused_as_a_parse_error(name: str, text: str) -> None:
    try:
        PARSERS[name][0](text)
    except ParseError:
        return


def told(reading: Reading) -> bool:
    """Whether a reading says itself that it may be incomplete."""
    return bool(reading.damage or reading.notes or reading.failure or reading.lost)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(("smi_xml", "smi_table")), st.data())
def test_a_cut_report_never_counts_wrong_in_silence(name: str, data: st.DataObject) -> None:
    parse, text = PARSERS[name]
    cut = text[: data.draw(st.integers(0, len(text)))]
    try:
        reading = parse(cut)
    except ParseError:
        return
    assert isinstance(reading, Reading)
    assert len(reading.cards) == 2 or told(reading)


@settings(max_examples=200, deadline=None)
@example({0, 12, 13, 14, 16, 17})  # the second card, and the next box's upper border with the line before it
@example({10, 11, 12, 14})  # one card's last row and the next one's first: the next one's use looks like its own
@given(st.sets(st.integers(0, BOX.count("\n")), min_size=1, max_size=6))
def test_a_box_that_lost_lines_never_counts_wrong_in_silence(gone: set[int]) -> None:
    text = "\n".join(line for number, line in enumerate(BOX.split("\n")) if number not in gone)
    try:
        reading = parse_table(text)
    except ParseError:
        return
    left = [number % 4 for number in range(8, 16) if number not in gone]  # a card has three rows and a border
    a_whole_box_of_one_card = left in ([0, 1, 2, 3], [0, 1, 3])
    assert len(reading.cards) == 2 or told(reading) or a_whole_box_of_one_card


def test_the_last_card_of_a_box_is_missed_by_the_bus() -> None:
    """A box cannot say that its last card is missing; sysfs does."""
    lines = BOX.split("\n")
    text = "\n".join(lines[:12] + lines[16:])
    pci = card("0000:00:06.0", ROOT, device="0x2335") + card("0000:00:07.0", ROOT, device="0x2335")
    inventory = build_inventory(Recording({"smi_table": text, "pci": pci}))
    assert (len(inventory.gpus), len(inventory.usable_gpus), inventory.parse) == (2, 1, ParseState.DEGRADED)


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10_000))
def test_a_matrix_that_lost_characters_is_right_unknown_or_refused(seed: int) -> None:
    """Relations that are read at all are those of the whole matrix."""
    chance = random.Random(seed)
    labels = ["NV4", "PIX", "SYS"]
    header = "\t" + "\t".join(f"GPU{i}" for i in range(3)) + "\tCPU Affinity\tNUMA Affinity"
    cells = [[" X ", labels[0], labels[1]], [labels[0], " X ", labels[2]], [labels[1], labels[2], " X "]]
    rows = [f"GPU{i}\t" + "\t".join(row) + "\t0-7\t0" for i, row in enumerate(cells)]
    text = "\n".join([header, *rows])
    start = chance.randrange(len(text))
    cut = text[:start] + text[start + chance.randrange(1, 12) :]
    try:
        topology = parse_topology(cut)
    except ParseError:
        return
    whole = {(pair.a, pair.b): (pair.lanes, pair.ancestor) for pair in parse_topology(text).pairs}
    wrong = [pair for pair in topology.pairs if whole.get((pair.a, pair.b)) != (pair.lanes, pair.ancestor)]
    assert not wrong or topology.damage


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_the_whole_text_is_read(name: str) -> None:
    parse, text = PARSERS[name]
    assert parse(text)

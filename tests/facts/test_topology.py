"""`topo -m` and `topo -p2p`: the layouts and kinds of damage that one parser has to stand."""

from __future__ import annotations

import pytest

from qwenlab.facts.readings import PairReading, ParseError
from qwenlab.facts.topology import parse_peer_matrix, parse_topology
from tests.facts.hosts import H200_PAIR

HEADER = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"


def matrix(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows, "", "Legend:", "", "  X    = Self", ""])


def test_the_recorded_bytes_of_two_h200() -> None:
    topology = parse_topology((H200_PAIR / "topo.txt").read_text())
    assert topology.gpus == (0, 1)
    assert topology.pairs == (PairReading(0, 1, lanes=18),)
    assert topology.numa_affinity == {0: "0", 1: "0"}
    assert topology.cpu_affinity == {0: "0-31", 1: "0-31"}
    assert topology.nics == ()
    assert topology.damage == ()


@pytest.mark.parametrize(
    ("tail", "cpu", "numa"),
    [
        ("0-31\t0\t\tN/A", "0-31", "0"),
        ("0-31\t0-3\t\tN/A", "0-31", "0-3"),
        ("0-31\t\tN/A\t\tN/A", "0-31", "N/A"),
        ("\t1\t\tN/A", "", "1"),
        ("\t\t\tN/A", "", ""),
        ("0-31\t0", "0-31", "0"),
    ],
)
def test_affinities_by_tab_position(tail: str, cpu: str, numa: str) -> None:
    """An empty field is empty and "N/A" comes with an extra tab: neither shifts what follows."""
    for text in (matrix(f"GPU0\t X \tPHB\t{tail}", "GPU1\tPHB\t X \t0-31\t0\t\tN/A"),):
        for variant in (text, text.expandtabs(8)):
            topology = parse_topology(variant)
            assert topology.cpu_affinity[0] == cpu
            assert topology.numa_affinity[0] == numa


def test_older_tables_have_fewer_columns() -> None:
    cpu_only = parse_topology(
        matrix("GPU0\t X \tSOC\t0-7", "GPU1\tSOC\t X \t8-15", header="\tGPU0\tGPU1\tCPU Affinity")
    )
    assert cpu_only.numa_affinity == {}
    assert cpu_only.cpu_affinity == {0: "0-7", 1: "8-15"}
    assert cpu_only.pairs[0].ancestor == "SYS"
    bare = parse_topology(matrix("GPU0\t X \tPIX", "GPU1\tPIX\t X ", header="\tGPU0\tGPU1"))
    assert bare.cpu_affinity == {}
    assert bare.pairs[0].ancestor == "PIX"


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        (matrix("GPU0\t X \tNV4\t0-7\t0\t\tN/A"), "no row for GPU1"),
        (matrix("GPU0\t X \tNV4\t0-7\t0\t\tN/A", "GPU1\tNV4"), "the row ends before GPU1"),
        (matrix("GPU0\t X \tN!4\t0-7\t0\t\tN/A", "GPU1\tNV4\t X \t0-7\t0\t\tN/A"), "is no relation"),
        (matrix("GPU0\t X \tNV4\t0-", "7\t0\t\tN/A", "GPU1\tNV4\t X \t0-7\t0\t\tN/A"), "broken over two lines"),
        (matrix("GPU0\t X \tNV4\t0-7\t0\t\tN/A", "GPU1\tSYS\t X \t0-7\t0\t\tN/A"), "related in two ways: NV4, SYS"),
    ],
)  # fmt: skip
def test_damage_is_named(text: str, damage: str) -> None:
    assert any(damage in spot for spot in parse_topology(text).damage)


def test_relations_that_contradict_each_other_are_left_unknown() -> None:
    assert parse_topology(matrix("GPU0\t X \tNV4\t0\t0\t\tN/A", "GPU1\tSYS\t X \t0\t0\t\tN/A")).pairs == ()


def test_a_header_broken_over_two_lines_is_joined() -> None:
    topology = parse_topology(
        "\tGPU0\tGPU1\tCPU Affi\nnity\tNUMA Affinity\nGPU0\t X \tPHB\t0-7\t0\nGPU1\tPHB\t X \t0-7\t0\n"
    )
    assert topology.numa_affinity == {0: "0", 1: "0"}
    assert topology.damage == ("the header was broken over two lines",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no header line"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "no header line"),
        (matrix("GPU0\tPIX\t X \t0\t0\t\tN/A", "GPU1\tPIX\t X \t0\t0\t\tN/A"), "rows and columns disagree"),
        (matrix("GPU0\t X \tPIX\t0\t0\t\tN/A", "GPU0\t X \tPIX\t0\t0\t\tN/A"), "two rows for GPU0"),
        (matrix("GPU0\t X \tPIX\t0\t0\t\tN/A", "GPU2\tPIX\t X \t0\t0\t\tN/A"), "rows GPU2 have no column"),
        (matrix("GPU0\t X \t X \t0\t0\t\tN/A", "GPU1\t X \t X \t0\t0\t\tN/A"), "marked as one card"),
    ],
)
def test_contradictions_are_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_topology(text)


def test_peer_codes_per_direction() -> None:
    text = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tCNS\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
    assert parse_peer_matrix(text) == {(0, 1): "OK", (1, 0): "CNS"}


PEERS_OK = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n"
PEERS_NS = PEERS_OK.replace("OK", "NS")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(f"{PEERS_OK}\n{PEERS_NS}", "OK", id="two matrices without a name"),
        pytest.param(
            f"$ nvidia-smi topo -p2p n\n{PEERS_NS}\n$ nvidia-smi topo -p2p r\n{PEERS_OK}", "OK", id="NVLink's"
        ),
        pytest.param(
            f"$ nvidia-smi topo -p2p r\n{PEERS_OK}\n$ nvidia-smi topo -p2p n\n{PEERS_NS}", "OK", id="after it"
        ),
        pytest.param(PEERS_OK.replace("OK", "MNS"), "MNS", id="a code of tomorrow"),
        pytest.param("".join(f"> {line}\n" for line in PEERS_NS.splitlines()), "NS", id="quoted"),
        pytest.param("| | GPU0 | GPU1 |\n|---|---|---|\n| GPU0 | X | NS |\n| GPU1 | NS | X |", "NS", id="a table"),
    ],
)
def test_a_peer_matrix_as_people_paste_it(text: str, code: str) -> None:
    assert parse_peer_matrix(text) == {(0, 1): code, (1, 0): code}


def test_a_matrix_as_a_markdown_table() -> None:
    text = "|  | GPU0 | GPU1 | CPU Affinity | NUMA Affinity |\n|:--|:--|:--|:--|:--|\n"
    topology = parse_topology(text + "| **GPU0** | X | NV4 | 0-7 | 0 |\n| **GPU1** | NV4 | X | 8-15 | 1 |\n")
    assert topology.pairs == (PairReading(0, 1, lanes=4),)
    assert (topology.cpu_affinity, topology.numa_affinity) == ({0: "0-7", 1: "8-15"}, {0: "0", 1: "1"})
    assert topology.damage == ()


@pytest.mark.parametrize(
    "text", ["", "Legend:", " \tGPU0\tGPU1\n GPU0\tX\n", " \tGPU0\tGPU1\n GPU0\tOK\tX\n", " \tGPU0\n GPU3\tX\n"]
)
def test_a_cut_peer_matrix_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_peer_matrix(text)

"""`nvidia-smi topo -m` and `topo -p2p r|w`: who is how far from whom.

The matrix is written with tabs whose number varies (an empty affinity, "N/A" with an extra tab), reaches us with
terminal escapes, expanded tabs, stray indentation, hard-wrapped lines and fused cells, and comes in three generations
of the table. Cells are read by their labels; what the damage makes ambiguous is left unknown and named in `damage`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwenlab.facts import quoting
from qwenlab.facts.readings import PairReading, ParseError
from qwenlab.facts.terminal import plain

# nvidia-smi's labels, the older ones mapped to today's (SOC: R375 and older; PSB: two GPUs on one board).
ANCESTORS = {"PIX": "PIX", "PSB": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "NODE", "SYS": "SYS", "SOC": "SYS"}

_LABEL = r"NV[0-9]{1,2}|PIX|PSB|PXB|PHB|NODE|SYS|SOC|X"
_CELL = re.compile(rf"^(?:{_LABEL})$")
_FUSED = re.compile(rf"^(?:{_LABEL}){{2,}}$")
_GPU = re.compile(r"^GPU([0-9]{1,3})$")
_FUSED_NAMES = re.compile(r"^(?:(?:GPU|NIC)[0-9]{1,3}){2,}$")
_TAIL = re.compile(r"CPU\s*Affinity|NUMA\s*Affinity|GPU\s*NUMA\s*ID|NUMA(?=\s*$)")
_SMALL_X = re.compile(r"(?<=\s)x(?=\s|$)")
_PADDING = re.compile(r" {64,}")
_PEER_CODE = re.compile(r"^(?!X$)[A-Z]{1,4}$")
_OTHER_PEERS = re.compile(r"-p2p[ =]+[^rw\s]")  # of NVLink, atomics, PCIe's own: not whether copies are granted
# What a terminal carries over into the next line: cells, a piece of an affinity, an elision.
_CARRIED = re.compile(r"^(?:[0-9,/-]+|[A-Z0-9/-]{1,5}|\.\.\.)$")
_STOP = 8


@dataclass(frozen=True)
class Topology:
    """The matrix. `gpus`: the columns' indices; affinities as printed ("0-3", "N/A", ""), none without a column."""

    gpus: tuple[int, ...]
    nics: tuple[str, ...]
    pairs: tuple[PairReading, ...]
    cpu_affinity: dict[int, str]
    numa_affinity: dict[int, str]
    damage: tuple[str, ...] = ()


def parse_topology(text: str) -> Topology:
    """Read `topo -m`. Raises `ParseError` when there is no matrix or when rows and columns contradict each other."""
    damage: list[str] = []
    lines = _lines(text, damage)
    start, header = _header(lines, damage)
    tail = _TAIL.search(header)
    columns = _names(header[: tail.start()] if tail else header, damage)
    elided = "..." in columns
    if elided:
        columns = columns[: columns.index("...")]
    gpus = tuple(int(match.group(1)) for name in columns if (match := _GPU.match(name)))
    if len(set(columns)) != len(columns):
        raise ParseError("topo -m: a column appears twice in the header")
    rows = _rows(lines[start + 1 :], columns, damage)
    extra = [f"GPU{i}" for i in rows if i not in gpus]
    if extra:
        raise ParseError(f"topo -m: rows {', '.join(extra)} have no column (columns GPU{gpus[0]}-{gpus[-1]})")
    absent = [f"GPU{i}" for i in gpus if i not in rows]
    if absent:
        damage.append(f"no row for {', '.join(absent)}")
    cells: dict[tuple[int, int], str | None] = {}
    cpu: dict[int, str] = {}
    numa: dict[int, str] = {}
    tail_columns = [re.sub(r"\s+", " ", name) for name in _TAIL.findall(header)]
    for i, line in rows.items():
        found = _cells(line, columns, damage, elided)
        for name, cell in found.items():
            if match := _GPU.match(name):
                cells[i, int(match.group(1))] = cell
        if cells.get((i, i), "X") not in ("X", None):
            raise ParseError(f"topo -m: row GPU{i} has {cells[i, i]} where itself should be: rows and columns disagree")
        _affinity(line, i, len(columns), tail_columns, (cpu, numa))
    return Topology(
        gpus=gpus,
        nics=tuple(name for name in columns if not _GPU.match(name)),
        pairs=tuple(_pairs(cells, damage)),
        cpu_affinity=cpu,
        numa_affinity=numa,
        damage=tuple(damage),
    )


def parse_peer_matrix(text: str) -> dict[tuple[int, int], str]:
    """Read `topo -p2p r` or `w`: (a, b) -> code for every ordered pair, "OK" or the reason.

    The codes: CNS chipset, GNS GPU, TNS topology, NS not supported, DR disabled by a registry key, U unknown; a code
    that a newer driver adds is kept as it is. Of several matrices in one text the first counts, save those that their
    command names as others. Raises `ParseError` when there is no matrix or a row does not fit the header.
    """
    columns: list[int] = []
    codes: dict[tuple[int, int], str] = {}
    other = False
    for line in quoting.matrix(plain(text)).splitlines():
        tokens = line.split()
        names = [_GPU.match(token) for token in tokens]
        if "-p2p" in line:
            other = bool(_OTHER_PEERS.search(line))
        if not tokens or other:
            continue
        if all(names) and (len(tokens) > 1 or not columns):
            if codes:
                break
            columns = [int(match.group(1)) for match in names if match]
        elif columns and names[0]:
            row = int(names[0].group(1))
            if len(tokens) - 1 != len(columns) or row not in columns:
                raise ParseError(f"topo -p2p: row GPU{row} has {len(tokens) - 1} cells for {len(columns)} columns")
            codes.update({(row, column): code for column, code in zip(columns, tokens[1:], strict=True)})
    if not columns:
        raise ParseError("topo -p2p: no matrix")
    wrong = [code for (a, b), code in codes.items() if (code == "X") != (a == b)]
    if wrong:
        raise ParseError("topo -p2p: the diagonal is not where the header puts it")
    return {pair: code for pair, code in codes.items() if _PEER_CODE.match(code)}


def _lines(text: str, damage: list[str]) -> list[str]:
    whole = "\n".join(line.rstrip("\r") for line in plain(text).split("\n"))
    lines = _SMALL_X.sub("X", quoting.matrix(whole)).split("\n")
    if any(_PADDING.search(line) for line in lines):
        damage.append("lines were wrapped by a terminal")
        lines = [_PADDING.sub("", line) for line in lines]
    return lines


def _header(lines: list[str], damage: list[str]) -> tuple[int, str]:
    named = (i for i, line in enumerate(lines) if line.split() and _GPU.match(line.split()[0]))
    position = next((i for i in named if not _is_row(lines[i].split())), None)
    if position is None:
        raise ParseError("topo -m: no header line naming GPU columns")
    end = position
    while end + 1 < len(lines) and lines[end + 1].strip() and not _is_row(lines[end + 1].split()):
        end += 1
        damage.append("the header was broken over two lines")
    return end, "".join(lines[position : end + 1])


def _is_row(tokens: list[str]) -> bool:
    return len(tokens) > 1 and bool(_GPU.match(tokens[0])) and bool(_CELL.match(tokens[1]) or _FUSED.match(tokens[1]))


def _rows(lines: list[str], columns: list[str], damage: list[str]) -> dict[int, str]:
    """GPU rows by index, with lines that a terminal broke joined again."""
    rows: dict[int, str] = {}
    last: int | None = None
    for line in lines:
        tokens = line.split()
        if not tokens:
            continue
        if "=" in tokens or tokens[-1].endswith((":", "\N{FULLWIDTH COLON}")):  # the legend
            break
        match = _GPU.match(tokens[0])
        if match and len(tokens) > 1 and not _GPU.match(tokens[1]):
            last = int(match.group(1))
            if last in rows and not _is_row(tokens):  # somebody's words about the card
                last = None
                continue
            if last in rows:
                raise ParseError(f"topo -m: two rows for GPU{last}")
            rows[last] = line
        elif tokens[0] in columns or not all(_CARRIED.match(token) for token in tokens):
            last = None
        elif last is not None and not match:
            rows[last] += line
            if "a row was broken over two lines" not in damage:
                damage.append("a row was broken over two lines")
    return rows


def _names(header: str, damage: list[str]) -> list[str]:
    """The columns' names; two that lost the tab between them are two ("NIC8NIC9", vllm-project/vllm 13855)."""
    names: list[str] = []
    for token in header.split():
        pieces = re.findall(r"[A-Z]{3}[0-9]+", token) if _FUSED_NAMES.match(token) else [token]
        if len(pieces) > 1:
            damage.append("column names were fused")
        names += pieces
    return names


def _split(token: str) -> list[str]:
    return re.findall(_LABEL, token) if _FUSED.match(token) else [token]


def _cells(line: str, columns: list[str], damage: list[str], elided: bool) -> dict[str, str | None]:
    """The row's cells by column name; None where the token is no label."""
    tokens: list[str] = []
    for token in line.split()[1:]:
        pieces = _split(token)
        if len(pieces) > 1 and "cells were fused" not in damage:
            damage.append("cells were fused")
        tokens += pieces
    cells: dict[str, str | None] = {}
    for name, token in zip(columns, tokens, strict=False):
        if token == "...":
            break
        known = bool(_CELL.match(token))
        cells[name] = token if known else None
        if not known and _GPU.match(name):
            damage.append(f"{line.split()[0]} to {name}: {token!r} is no relation")
    short = [name for name in columns if _GPU.match(name) and name not in cells]
    if short and not elided:
        damage.append(f"{line.split()[0]}: the row ends before {short[0]}")
    return cells


def _affinity(
    line: str, row: int, width: int, tail_columns: list[str], into: tuple[dict[int, str], dict[int, str]]
) -> None:
    """CPU and NUMA affinity of a row, from the tab-separated fields behind the cells."""
    if not tail_columns:
        return
    cpu, numa = into
    fields = [piece for field in _fields(line) or () for piece in _split(field.strip())]
    if len(fields) < 1 + width:
        words = line.split()[1 + width :]
        if len(words) != len(tail_columns):
            return
        fields = ["", *[""] * width, *words]
    tail = fields[1 + width :]
    if "..." in tail:
        return
    if tail_columns[0] != "CPU Affinity":  # a matrix that somebody cut down to the nodes
        numa[row] = tail[0] if tail else ""
        return
    cpu[row] = tail[0] if tail else ""
    if not {"NUMA Affinity", "NUMA"} & set(tail_columns):
        return
    filled = [(position, value) for position, value in enumerate(tail[1:], start=1) if value]
    # "GPU NUMA ID" is always filled and stands behind an extra tab: alone and far out, it is not the affinity.
    if len(filled) > 1 or (filled and ("GPU NUMA ID" not in tail_columns or filled[0][0] < 3)):
        numa[row] = filled[0][1]
    else:
        numa[row] = ""


def _fields(line: str) -> list[str] | None:
    """The row's fields, by its tabs, or by the tab stops where tabs were expanded to blanks; None if neither fits."""
    if "\t" in line:
        return line.lstrip(" ").split("\t")
    words = [(match.start(), match.group()) for match in re.finditer(r"\S+", line)]
    indent = words[0][0]
    fields: list[str] = []
    end = 0
    for start, text in ((start - indent, text) for start, text in words):
        if start % _STOP > 1:
            return None
        gaps = start // _STOP - end // _STOP if fields else 1
        fields += [""] * (gaps - 1) + [text]
        end = start + len(text)
    return fields


def _pairs(cells: dict[tuple[int, int], str | None], damage: list[str]) -> list[PairReading]:
    pairs = []
    for a, b in sorted({(min(pair), max(pair)) for pair in cells if pair[0] != pair[1]}):
        labels = {label for label in (cells.get((a, b)), cells.get((b, a))) if label}
        if len(labels) > 1:
            damage.append(f"GPU{a} and GPU{b} are related in two ways: {', '.join(sorted(labels))}")
        if len(labels) != 1:
            continue
        label = labels.pop()
        if label == "X":
            raise ParseError(f"topo -m: GPU{a} and GPU{b} are marked as one card: rows and columns disagree")
        if label.startswith("NV"):
            pairs.append(PairReading(a, b, lanes=int(label[2:])))
        else:
            pairs.append(PairReading(a, b, lanes=0, ancestor=ANCESTORS[label]))
    return pairs

"""A matrix or a box as somebody quoted it: behind `>` or a log's time, or as a Markdown table."""

from __future__ import annotations

import re

_ROW = re.compile(
    r"^(?P<before>(?:(?!GPU)[^|\n])*?[^\s|](?:(?!GPU)[^|\n])*?)"
    r"GPU[0-9]{1,3}[ \t]+(?:X|NV[0-9]+|PIX|PXB|PSB|PHB|NODE|SYS|SOC|OK|[CGT]?NS|DR|U)\b",
    re.MULTILINE,
)
_TABLE_ROW = re.compile(r"^[ \t]*\|[ \t*`]*GPU[0-9]{1,3}[ \t*`]*\|", re.MULTILINE)
_TABLE_RULE = re.compile(r"^[|:\s-]+$")
# "NVIDIA Topology: GPU0 GPU1 ..." (LMDeploy's report of its environment).
_ANNOUNCED = re.compile(r"^[^|\n]*[^|\s]:[ \t]+(?=GPU[0-9]+[ \t]+(?:GPU|NIC|mlx|CPU))", re.MULTILINE)
_BORDER = re.compile(r"^(?P<before>[^|+\n]*[^|+\s][^|+\n]*?)\+[-=+]{40,}\+[ \t]*$", re.MULTILINE)


def matrix(text: str) -> str:
    """`topo -m` or `topo -p2p` without what stands before each of its lines, and with tabs for a table's bars."""
    if _TABLE_ROW.search(text):
        return "\n".join(_fields(line) for line in text.split("\n") if not _is_rule(line))
    return _ANNOUNCED.sub("\t", _cut(text, _ROW.search(text), "GPU"), count=1)


def box(text: str) -> str:
    """nvidia-smi's table without what stands before each of its lines, where that is always as long."""
    return _cut(text, _BORDER.search(text), "|")


def _cut(text: str, first: re.Match[str] | None, content: str) -> str:
    before = first["before"] if first else ""
    if not first or content in before:
        return text
    width = len(before)
    return "\n".join(
        line[width:] if content not in line[:width] else line if line.strip() != before.strip() else ""
        for line in text.split("\n")
    )


def _is_rule(line: str) -> bool:
    return "--" in line and bool(_TABLE_RULE.match(line))


def _fields(line: str) -> str:
    if not line.lstrip().startswith("|"):
        return line
    return "\t".join(field.strip(" \t*`") for field in line.strip().strip("|").split("|"))

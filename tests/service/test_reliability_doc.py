"""docs/reliability.md names a test for each fault, and each fault that tests/lab injects into a host is in there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs/reliability.md").read_text()
SHOWN_BY = re.compile(r"(lab|sim|unit)((?: `[^`]+`)+)")
WHERE = {"lab": "lab/test_*.py", "sim": "service/test_gate_on_cards.py", "unit": "service/test_*.py"}


def rows() -> list[tuple[str, str]]:
    """Fault and what shows it, of every table of faults."""
    tables = re.findall(r"^\| fault \|.*\n\| ---.*\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|\n").split("|")] for table in tables for line in table.splitlines()]
    return [(fault, shown) for fault, _, shown in cells]


@cache
def names(pattern: str) -> frozenset[str]:
    """Test functions, names of cases (keys of a dict in capitals) and ids of parameters."""
    found: set[str] = set()
    for path in TESTS.glob(pattern):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.add(node.name)
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                found |= set(_words(node.value.keys))
            elif isinstance(node, ast.keyword) and node.arg == "ids" and isinstance(node.value, ast.List):
                found |= set(_words(node.value.elts))
    return frozenset(found)


def _words(nodes: list[ast.expr] | list[ast.expr | None]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def injected() -> set[str]:
    """Cases of a module that has them, else its tests."""
    found: set[str] = set()
    for path in TESTS.glob("lab/test_faults_*.py"):
        tree = ast.parse(path.read_text())
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _is_faults(node.targets[0]):
                found |= set(_words(node.value.keys))
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and "name" not in _arguments(node):
                found.add(node.name)
    return found


def _is_faults(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and (target.id.endswith("FAULTS") or target.id == "UNHURT")


def _arguments(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in function.args.args]


@pytest.mark.parametrize(("fault", "shown"), rows())
def test_a_fault_is_shown_by_tests_that_exist(fault: str, shown: str) -> None:
    assert SHOWN_BY.fullmatch(shown.split(", ")[-1]), fault
    for kind, listed in SHOWN_BY.findall(shown):
        missing = set(re.findall(r"`([^`]+)`", listed)) - names(WHERE[kind])
        assert not missing, f"{fault}: no such {kind} test: {missing}"


def test_each_fault_that_a_lab_host_goes_through_has_its_row() -> None:
    named = {name for _, shown in rows() for name in re.findall(r"`([^`]+)`", shown)}
    assert injected() - named == set()
    assert len(injected()) > 40

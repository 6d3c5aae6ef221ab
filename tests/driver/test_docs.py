"""docs/driver.md says what the tables say."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwenlab.driver.tables import BRANCHES, DISTRIBUTIONS

LINES = (Path(__file__).resolve().parents[2] / "docs" / "driver.md").read_text().splitlines()


@pytest.mark.parametrize("system", DISTRIBUTIONS, ids=[" ".join(key) for key in DISTRIBUTIONS])
def test_every_release_stands_in_the_docs(system: tuple[str, str]) -> None:
    one = DISTRIBUTIONS[system]
    assert f"| {system[0].title()} {system[1]} | {one.repository} | {one.key_file} | {one.fingerprint} |" in LINES


@pytest.mark.parametrize("number", BRANCHES)
def test_every_branch_stands_in_the_docs(number: int) -> None:
    branch, default = BRANCHES[number], " (default)" if number == 580 else ""
    assert any(line.startswith(f"| {number}{default} | {branch.cuda} | {branch.kind} |") for line in LINES)

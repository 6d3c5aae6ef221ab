"""docs/served.md says of every layout, way of speculating and version whether the served tests allow it."""

from __future__ import annotations

from pathlib import Path

from tests.patches.layouts import ALL, NOT_ALLOWED

DOCUMENT = Path(__file__).parents[2] / "docs" / "served.md"


def test_the_table_lists_every_combination_and_the_reason_of_each_that_is_not_served() -> None:
    first = DOCUMENT.read_text().partition("\n| layout |")[2].partition("\n\n")[0]
    table = [line for line in f"| layout |{first}".splitlines() if line.startswith("| ")]
    header, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table)
    said = {
        (*column.split(" ", 1), row[0]): cell for row in rows for column, cell in zip(header[1:], row[1:], strict=True)
    }
    expected = {
        (version, method, layout): NOT_ALLOWED.get((version, layout, method), "equal")
        for version, layout, method in ALL
    }
    assert said == expected

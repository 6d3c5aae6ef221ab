"""What nvidia-smi printed, whichever of its forms it is: people paste any of them and call it its output."""

from __future__ import annotations

from collections.abc import Callable

from qwenlab.facts.readings import Reading
from qwenlab.facts.smi_query import is_query, parse_query
from qwenlab.facts.smi_report import is_report, parse_report
from qwenlab.facts.smi_table import is_list, is_table, parse_list, parse_table
from qwenlab.facts.smi_xml import is_xml, parse_xml

_FORMS: tuple[tuple[Callable[[str], bool], Callable[[str], Reading]], ...] = (
    (is_xml, parse_xml),
    (is_table, parse_table),
    (is_report, parse_report),
    (is_list, parse_list),
    (is_query, parse_query),
)


def parse_text(text: str) -> Reading:
    """Read it by its form; what has none is nvidia-smi's words. Raises `ParseError` where they are not known."""
    return next((parse for matches, parse in _FORMS if matches(text)), parse_table)(text)

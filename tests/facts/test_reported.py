"""Excerpts of public reports (tests/data/reported): what the probe must make of each."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.published import parse_published
from qwenlab.facts.summary import summarise
from qwenlab.host_inventory import HostInventory
from tests.facts.hosts import DATA, codes, text_of
from tests.facts.test_corpus import KEYS

CASES = [
    pytest.param(case, id=f"{path.stem}: {case['id']}")
    for path in sorted((DATA / "reported").glob("*.yaml"))
    if path.stem != "journal_lines"
    for case in yaml.safe_load(path.read_text())
]


def read(case: dict[str, Any]) -> HostInventory:
    return build_inventory(parse_published(yaml.safe_dump(case)))


@pytest.mark.parametrize("case", CASES)
def test_a_report_is_understood(case: dict[str, Any]) -> None:
    want, found = case["expected"], read(case)
    summary = summarise(found)
    assert {key: summary[key] for key in KEYS if key in want} == {key: want[key] for key in KEYS if key in want}
    assert set(want.get("diagnoses", ())) <= codes(found)
    assert not set(want.get("without", ())) & codes(found)
    for code, phrase in want.get("says", {}).items():
        assert phrase in text_of(found, code)
    left_out = {gpu.pci_bus_id: gpu.unusable_because or "" for gpu in found.gpus if not gpu.usable}
    for address, phrase in want.get("left_out", {}).items():
        assert phrase in left_out[address]
    for gpu, card in zip(found.gpus, want.get("cards", ()), strict=False):
        values = gpu.model_dump(mode="json")
        assert {name: values[name] for name in card} == card


@pytest.mark.parametrize("case", CASES)
def test_every_report_names_its_source_and_an_expectation(case: dict[str, Any]) -> None:
    assert case["source"]
    assert case["expected"]

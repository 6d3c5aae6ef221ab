"""Lines as users reported them (tests/data/reported/journal_lines.yaml): what is told of each."""

from __future__ import annotations

import pytest
import yaml

from qwenlab.remote.status import KERNEL
from qwenlab.service.diagnosis import diagnose
from qwenlab.service.symptoms import SYMPTOMS
from tests.facts.hosts import DATA

CASES = yaml.safe_load((DATA / "reported/journal_lines.yaml").read_text())
QUIET = (
    "INFO 08-13 11:27:02 [loggers.py:236] Engine 000: Avg prompt throughput: 12.0 tokens/s",
    "WARNING [cuda.py:803] Detected different devices in the system: NVIDIA RTX A5000, NVIDIA GeForce RTX 3090.",
    "[W socket.cpp:464] [c10d] The server socket cannot be initialized on [::]:52345 (errno: 97 - Address family not "
    "supported by protocol).",
    "Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback.",
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  595.71.05  Release Build",
)


@pytest.mark.parametrize("case", CASES, ids=[case["line"][:60] for case in CASES])
def test_a_reported_line_is_told(case: dict[str, str]) -> None:
    (finding,) = diagnose(["INFO: all is well", case["line"]])
    assert finding.code == case["code"]
    assert finding.text
    assert finding.text == case.get("text", finding.text)
    assert case["source"]


@pytest.mark.parametrize("line", QUIET)
def test_lines_of_a_sound_start_say_nothing(line: str) -> None:
    assert diagnose([line]) == []


def test_every_symptom_has_one_name_and_words() -> None:
    codes = [symptom.code for symptom in SYMPTOMS]
    assert len(set(codes)) == len(codes)
    assert all(symptom.text or symptom.pattern.groupindex for symptom in SYMPTOMS)


@pytest.mark.parametrize("code", ["xid-145", "uvm", "card-not-started"])
def test_the_kernels_lines_reach_the_status(code: str) -> None:
    assert KERNEL.search(next(case["line"] for case in CASES if case["code"] == code))

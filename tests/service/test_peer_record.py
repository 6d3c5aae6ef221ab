"""The live peer test's verdicts stay on the host, and plans go by them as long as the machine is the same."""

from __future__ import annotations

import json
from pathlib import Path
from unittest import mock

import pytest

from qwenlab.facts.peer_verdicts import PeerRecord, PeerVerdict, TestedPeers, as_tested
from qwenlab.host_inventory import HostInventory
from qwenlab.inventory_source import read_inventory
from qwenlab.operations import planning, verification
from qwenlab.planner import plan
from qwenlab.settings import load
from tests.operations.fake import commands

RECORDED = Path(__file__).parents[1] / "data" / "recorded" / "h200x2-gathered"
SETTINGS = load({"qwen_tensor_parallel": 2, "qwen_verify_peers": True})


@pytest.fixture(scope="module")
def pair() -> HostInventory:
    """A host with two cards that NVLink joins."""
    return read_inventory(str(RECORDED))


def verdict(pair: HostInventory, word: str) -> PeerVerdict:
    a, b = (gpu.uuid or "" for gpu in pair.gpus)
    return PeerVerdict(a, b, word, "as the test says", 300.0 if word == "ok" else None)


def record(pair: HostInventory, word: str, fingerprint: str | None = None) -> PeerRecord:
    return PeerRecord(fingerprint=fingerprint or pair.fingerprint or "", verdicts=(verdict(pair, word),))


@pytest.mark.parametrize(
    ("word", "disabled"), [("ok", None), ("hang", "1"), ("wrong", "1"), ("froze", "1"), ("failed", "1")]
)
def test_a_plan_goes_through_host_memory_where_the_test_failed(
    pair: HostInventory, word: str, disabled: str | None
) -> None:
    (engine,) = plan(as_tested(pair, record(pair, word)), SETTINGS).engines
    assert engine.tp == 2
    assert engine.env.get("NCCL_P2P_DISABLE") == disabled
    assert engine.args.get("disable-custom-all-reduce") is (True if disabled else None)


@pytest.mark.parametrize("other", [None, "another machine"], ids=["never tested", "another BIOS, kernel or driver"])
def test_a_verdict_on_another_machine_says_nothing(pair: HostInventory, other: str | None) -> None:
    kept = record(pair, "hang", other) if other else None
    assert as_tested(pair, kept) == pair


@pytest.mark.parametrize("text", ["", "{", "[]", '{"fingerprint": "x"}', '{"fingerprint": "x", "verdicts": [1]}'])
def test_a_damaged_record_counts_as_none(text: str) -> None:
    assert TestedPeers().process(text.splitlines()) is None


def test_a_newer_verdict_replaces_the_one_on_the_same_pair_whatever_the_order(pair: HostInventory) -> None:
    newer = verdict(pair, "ok")
    turned = PeerVerdict(newer.b, newer.a, "ok", "", 301.0)
    other = PeerVerdict(newer.a, "GPU-third", "hang", "")
    assert record(pair, "hang").with_newer([turned, other]).verdicts == (turned, other)


def test_a_card_that_could_not_take_part_leaves_the_verdict_as_it_was(pair: HostInventory) -> None:
    assert record(pair, "ok").with_newer([verdict(pair, "untested")]) == record(pair, "ok")


def test_a_card_that_could_not_take_part_fails_the_host_with_what_to_do(
    pair: HostInventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "host_inventory", lambda _settings: pair)
    answers = {"peer_test.py": json.dumps([vars(verdict(pair, "untested"))])}
    *_, (last, reasons) = commands(verification.peers, answers, settings=SETTINGS)
    assert last == "refused"
    assert "systemctl stop qwen" in reasons
    assert "plans without peer access" not in reasons


@pytest.mark.parametrize(("word", "refused"), [("ok", False), ("refused", False), ("hang", True), ("wrong", True)])
def test_the_verdicts_are_written_down_before_the_host_fails(
    pair: HostInventory, word: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "host_inventory", lambda _settings: pair)
    answers = {"peer_test.py": json.dumps([vars(verdict(pair, word))])}
    _folder, (write, text), (last, reasons) = commands(verification.peers, answers, settings=SETTINGS)
    assert "mv -f /var/lib/qwenlab/peer-test.json.new /var/lib/qwenlab/peer-test.json" in write
    assert TestedPeers().process([text]) == record(pair, word)
    assert (last == "refused") is refused
    assert ("plans without peer access" in reasons) is refused


def test_the_inventory_is_read_once_a_turn(pair: HostInventory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it takes a host seconds."""
    read = mock.Mock(return_value=pair)
    for module in (planning, verification):
        monkeypatch.setattr(module, "host_inventory", read)
    answers = {"peer_test.py": json.dumps([vars(verdict(pair, "ok"))])}
    commands(verification.peers, answers, settings=SETTINGS)
    assert read.call_count == 2  # pyinfra's look ahead, and the turn itself

"""The live peer test's answers: asking a host for them, and what they change in its inventory."""

from __future__ import annotations

import base64
import gzip
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.hiddenvalue import HiddenValue

from qwenlab.facts.answers import kept_record, reading, value_of
from qwenlab.host_inventory import Diagnosis, HostInventory, Severity
from qwenlab.record import Record

PEER_RECORD = "/var/lib/qwenlab/peer-test.json"
_PROGRAM = Path(__file__).with_name("peer_test.py")
_MARKER = "/var/lib/qwen/peer-test-started"
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{36}")
UNTESTED = "untested"
_BAD = {"hang": "hangs", "wrong": "delivers wrong values", "froze": "froze the machine", "failed": "fails"}


@dataclass(frozen=True)
class PeerVerdict:
    """One pair by UUID: "ok", "refused", "wrong", "hang", "froze", "failed", or "untested".

    `untested` says that a card could not take part; `gb_s` is that of the slower direction.
    """

    a: str
    b: str
    verdict: str
    detail: str
    gb_s: float | None = None


class PeerRecord(Record):
    """What was last measured on a host; it holds as long as the machine's `fingerprint` is the same."""

    fingerprint: str
    verdicts: tuple[PeerVerdict, ...]

    def with_newer(self, verdicts: Iterable[PeerVerdict]) -> PeerRecord:
        """The record with these verdicts in place of older ones on the same pairs; "untested" is none."""
        tested = (one for one in verdicts if one.verdict != UNTESTED)
        found = {frozenset((one.a, one.b)): one for one in (*self.verdicts, *tested)}
        return PeerRecord(fingerprint=self.fingerprint, verdicts=tuple(found.values()))


class TestedPeers(FactBase[PeerRecord | None]):
    """The record of a host; None when nothing was tested, or the record is damaged: another test writes it anew."""

    __test__ = False  # no test class, whatever its name begins with

    def command(self) -> str:
        """The file, where there is one."""
        return f"cat {PEER_RECORD} 2>/dev/null; true"

    def process(self, output: list[str]) -> PeerRecord | None:
        """The record as it was written."""
        return kept_record(output, PeerRecord)


class PeerTest(FactBase[list[PeerVerdict]]):
    """Runs the test on the host. It loads the cards: ask for it only where the user did. The marker needs root."""

    def command(self, uuids: tuple[str, ...], limit: float = 30.0) -> StringCommand:
        """Tests every pair of `uuids`, at most `limit` seconds each.

        The program is written to a private temporary file, since each pair's process runs it anew.
        """
        wrong = [uuid for uuid in uuids if not _UUID.fullmatch(uuid)]
        if wrong:
            raise ValueError(f"not a GPU's UUID: {wrong[0]!r}")
        packed = base64.b64encode(gzip.compress(_PROGRAM.read_bytes(), 9, mtime=0)).decode()
        words = " ".join(shlex.quote(word) for word in ("--limit", f"{limit:g}", "--marker", _MARKER, *uuids))
        steps = (
            "d=$(mktemp -d)",
            "trap 'rm -rf \"$d\"' EXIT",
            f'printf %s {packed} | base64 -d | gzip -dc >"$d/peer_test.py"',
            f'python3 "$d/peer_test.py" {words}',
        )
        return StringCommand(HiddenValue(" && ".join(steps), f"(peer_test.py) {words}"))

    def process(self, output: list[str]) -> list[PeerVerdict]:
        """Raises `FactProcessError` when the program's answer is no list of verdicts."""
        with reading("the peer test's answer"):
            return [PeerVerdict(**row) for row in value_of(output)]


def as_tested(inventory: HostInventory, record: PeerRecord | None) -> HostInventory:
    """The inventory with the verdicts of a test on this very machine: cards, slots, BIOS, kernel, driver and IOMMU."""
    if record is None or record.fingerprint != inventory.fingerprint:
        return inventory
    return with_verdicts(inventory, list(record.verdicts))


def with_verdicts(inventory: HostInventory, verdicts: list[PeerVerdict]) -> HostInventory:
    """The inventory with what was measured: `measured_peer_ok`, `measured_gb_s`, and a diagnosis for each bad pair."""
    by_pair = {frozenset((item.a, item.b)): item for item in verdicts}
    uuids = {gpu.index: gpu.uuid for gpu in inventory.gpus}
    pairs = []
    for pair in inventory.pairs:
        found = by_pair.get(frozenset((uuids.get(pair.a) or "", uuids.get(pair.b) or "")))
        if found is not None:
            pair = pair.model_copy(update={"measured_peer_ok": found.verdict == "ok", "measured_gb_s": found.gb_s})
        pairs.append(pair)
    bad = tuple(
        Diagnosis(
            code=f"peer_test_{item.verdict}",
            severity=Severity.WARNING,
            text=f"Peer access between {item.a} and {item.b} {_BAD[item.verdict]}: {item.detail}. It stays off.",
            gpu=item.a,
        )
        for item in verdicts
        if item.verdict in _BAD
    )
    kept = tuple(item for item in inventory.diagnoses if item.code != "peer_access_untested" or not verdicts)
    return inventory.model_copy(update={"pairs": tuple(pairs), "diagnoses": (*kept, *bad)})

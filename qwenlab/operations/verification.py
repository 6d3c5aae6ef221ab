"""Verification of the engines of a host: the battery, and on request the live peer test between its cards."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from qwenlab.facts.peer_verdicts import (
    PEER_RECORD,
    UNTESTED,
    PeerRecord,
    PeerTest,
    PeerVerdict,
    TestedPeers,
)
from qwenlab.facts.verification import VerifyResults
from qwenlab.operations.paths import put_with_folders
from qwenlab.operations.planning import host_inventory, plan_of
from qwenlab.operations.refusal import refusal
from qwenlab.remote import LIBRARY
from qwenlab.render import RemoteFile
from qwenlab.settings import Settings

NO_PEERS = "the next deploy plans without peer access between these cards"
BAD = dict.fromkeys(("wrong", "hang", "froze", "failed"), NO_PEERS)
NOT_TESTED = "nothing follows from that for the plan: stop what holds the cards (systemctl stop qwen) and test again"


@operation(is_idempotent=False)
def verify(settings: Settings, rollback: bool = False) -> Generator[PyinfraCommand, None, None]:
    """Ask every engine the battery; the host fails when a check does, or a rate fell since the last time.

    Args:
        settings: the host's settings.
        rollback: bring the last good generation back when a check fails.
    """
    back = (
        f"|| {{ python3 {LIBRARY}/generation.py restore --because 'it failed verification'; exit 1; }}"
        if rollback
        else ""
    )
    yield StringCommand("python3 -B", f"{LIBRARY}/verify.py", "--limit", f"{settings.verify_limit_percent:g}", back)
    yield FunctionCommand(_show, [], {})


@operation(is_idempotent=False)
def peers(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Test every pair of planned cards; the host fails when data arrives wrong or not at all.

    The verdicts stay on the host: plans go by them until cards, slots, BIOS, kernel, driver or IOMMU change.

    Args:
        settings: the host's settings.
    """
    inventory = host_inventory(settings)
    uuids = tuple(dict.fromkeys(uuid for engine in plan_of(inventory, settings).engines for uuid in engine.gpus))
    if len(uuids) < 2:
        host.noop("fewer than two cards are planned")
        return
    verdicts = host.get_fact(PeerTest, uuids=uuids)
    if inventory.fingerprint:
        yield from _keep(inventory.fingerprint, verdicts)
    if reasons := [*_reasons(verdicts, BAD), *_reasons(verdicts, {UNTESTED: NOT_TESTED})]:
        yield refusal(reasons)
    else:
        yield FunctionCommand(_show_peers, [verdicts], {})


def _reasons(verdicts: list[PeerVerdict], words: Mapping[str, str]) -> list[str]:
    """A line for each pair with one of these verdicts, and what follows from it."""
    found = [one for one in verdicts if one.verdict in words]
    lines = [f"peer access {one.a} - {one.b}: {one.verdict}: {one.detail}" for one in found]
    return [*lines, *dict.fromkeys(words[one.verdict] for one in found)]


def _keep(fingerprint: str, verdicts: list[PeerVerdict]) -> Generator[StringCommand, None, None]:
    before = host.get_fact(TestedPeers)
    older = before.verdicts if before is not None and before.fingerprint == fingerprint else ()
    record = PeerRecord(fingerprint=fingerprint, verdicts=older).with_newer(verdicts)
    yield from put_with_folders({PEER_RECORD: RemoteFile(f"{record.model_dump_json()}\n")})


def _show(state: State, host: Host) -> None:
    for result in host.get_fact(VerifyResults):
        for line in result.lines():
            logger.info(f"{host.print_prefix}{line}")


def _show_peers(state: State, host: Host, verdicts: list[PeerVerdict]) -> None:
    for one in verdicts:
        rate = f", {one.gb_s} GB/s" if one.gb_s else ""
        logger.info(f"{host.print_prefix}peer access {one.a} - {one.b}: {one.verdict}{rate}")

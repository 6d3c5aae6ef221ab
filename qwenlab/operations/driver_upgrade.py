"""The driver of one host after the other: downloaded, engine down, driver replaced, engine up and verified."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from qwenlab.driver.decision import Verdict
from qwenlab.facts.file_states import PathStates
from qwenlab.facts.unit_state import UnitState
from qwenlab.operations import driver, driver_packages, verification
from qwenlab.operations.driver_packages import look
from qwenlab.operations.refusal import refusal
from qwenlab.settings import Settings

UNVERIFIED = "/etc/qwen/driver-upgrade"  # from the stop of the engines to their verification, over runs
_begun: list[str] = []  # hosts of this run whose upgrade has not come to its good end
PREPARED = (driver_packages.repository, driver_packages.pin, driver_packages.fetch)  # while the engines serve
REPLACED = (driver_packages.install, driver.boot_files, driver_packages.hold, driver.activate, driver.works)


@operation()
def upgrade(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Bring the host's driver to the branch or version that the settings name; to be called with `_serial=True`.

    A host where it fails keeps the hosts after it from being begun, and the next run takes it up where it ended.
    Without a branch in the settings nothing is done: what works stays.

    Args:
        settings: the host's settings.
    """
    _, decision = look(settings)
    if decision.verdict is Verdict.REFUSE:
        yield refusal(decision.reasons)
        return
    unfinished = UNVERIFIED in host.get_fact(PathStates, paths=(UNVERIFIED,))
    if decision.verdict is Verdict.LEAVE and not unfinished:
        hint = "" if settings.asked_branch else "; qwen_driver_branch or qwen_driver_version name what to upgrade to"
        host.log("nothing to upgrade: " + "; ".join(decision.reasons) + hint)
        return
    serving = host.get_fact(UnitState, unit="qwen.service").split()[0] != "absent"
    yield FunctionCommand(_begin, [], {})
    yield StringCommand("mkdir -p /etc/qwen && touch", UNVERIFIED)
    for step in PREPARED:
        yield from step._inner(settings=settings)
    if serving and decision.verdict is not Verdict.LEAVE:
        # the engines hold the cards: the old module cannot go, and a half-replaced library breaks them anyway
        yield StringCommand("systemctl stop qwen.service 'qwen-engine@*.service'")
    for step in REPLACED:
        yield from step._inner(settings=settings)
    if serving:
        yield StringCommand("systemctl start qwen.service")
        yield from verification.verify._inner(settings=settings)
    yield StringCommand("rm -f", UNVERIFIED)
    yield FunctionCommand(_end, [], {})


def _begin(state: State, host: Host) -> bool:
    if _begun:
        host.log_styled(
            f"not begun: the upgrade of {_begun[0]} failed; mend it first, then run again",
            fg="red",
            log_func=logger.error,
        )
        return False
    _begun.append(host.name)
    return True


def _end(state: State, host: Host) -> None:
    _begun.remove(host.name)

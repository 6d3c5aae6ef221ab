"""The NVIDIA driver on a host: can it be brought to work, and does it. Its packages are `driver_packages`'."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import logger
from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from qwenlab.driver import files, words
from qwenlab.driver.decision import Verdict
from qwenlab.facts.driver_state import REBOOTED
from qwenlab.facts.file_states import PathStates
from qwenlab.facts.unit_state import UnitState
from qwenlab.operations.driver_packages import look
from qwenlab.operations.paths import put, write
from qwenlab.operations.reboot import reboot_and_wait, runs_here
from qwenlab.operations.refusal import refusal
from qwenlab.render import RemoteFile
from qwenlab.settings import Settings


@operation()
def check(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Refuse a host whose driver cannot be brought to work; changes nothing.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    if decision.verdict is Verdict.REFUSE:
        yield refusal(decision.reasons)
        return
    if decision.verdict is Verdict.INSTALL and settings.offline:
        yield refusal([words.no_network(state)])
        return
    if decision.verdict is Verdict.ACTIVATE and not settings.allow_reboot and state.mismatch:
        yield refusal((*decision.reasons, words.reboot_needed(state)))
        return
    for reason in decision.reasons:
        host.log(reason, log_func=logger.info)
    host.noop(f"driver: {decision.verdict}")


@operation()
def boot_files(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """The kernel's own drivers blacklisted, modules at boot, persistence daemon with persistence.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    if not (state.managed or decision.verdict is Verdict.ACTIVATE) or state.wsl:
        host.noop("the driver was not installed by qwenlab: left as it is")
        return
    wanted = files.boot_files()
    folder = files.PERSISTENCE.rsplit("/", 1)[0]
    if folder not in host.get_fact(PathStates, paths=(folder,)):
        yield StringCommand("install -d -m 755", QuoteString(folder))
    changed = yield from put(wanted)
    if files.NOUVEAU in changed:
        yield StringCommand("! command -v update-initramfs >/dev/null || update-initramfs -u -k all")
    if files.PERSISTENCE in changed:
        yield StringCommand("systemctl daemon-reload")


@operation()
def activate(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Load the module; where that takes a reboot, reboot, once and only if it is allowed.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    if decision.verdict is not Verdict.ACTIVATE:
        if state.rebooted_for:
            yield StringCommand("rm -f", REBOOTED)
        host.noop("; ".join(decision.reasons) or "nothing to load")
        return
    free = state.loaded is None and not state.holder and state.boot_kernel == state.running
    if free:
        yield StringCommand("modprobe nvidia && { modprobe nvidia-uvm; udevadm settle 2>/dev/null; true; } || true")
        state, decision = look(settings)
        if decision.verdict is not Verdict.ACTIVATE:
            return
    reason = f"{state.module} on {state.boot_kernel}"
    if state.rebooted_for == reason:
        yield refusal([words.after_reboot(state)])
        return
    if not settings.allow_reboot:
        yield refusal([words.reboot_needed(state)])
        return
    if runs_here(state.boot_id):
        yield refusal([words.own_machine()])
        return
    yield StringCommand("mkdir -p /etc/qwen")
    yield write(REBOOTED, RemoteFile(f"{reason}\n"))
    yield reboot_and_wait(state.boot_id, serial=settings.reboot_serial, timeout_s=settings.reboot_timeout_s)


@operation()
def works(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """The driver lists the cards and its daemons run; else a diagnosis.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    if decision.verdict is not Verdict.LEAVE:
        yield refusal([words.after_reboot(state)] if state.rebooted_for else decision.reasons)
        return
    if state.rebooted_for:
        yield StringCommand("rm -f", REBOOTED)
    daemons = ("nvidia-persistenced", *(("nvidia-fabricmanager",) if state.nvswitches else ()))
    if state.managed and state.cards:
        for daemon in daemons:
            yield from _running(f"{daemon}.service")
    else:
        host.noop("; ".join(decision.reasons))


def _running(unit: str) -> Generator[PyinfraCommand, None, None]:
    if host.get_fact(UnitState, unit=unit) != "enabled active":
        yield StringCommand("systemctl enable --quiet --now", unit)

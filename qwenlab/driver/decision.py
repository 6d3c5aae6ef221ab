"""What to do about a host's driver: leave it, install one, bring an installed one to life, or refuse.

Decided before anything is touched, and again at every step: the state it rests on changes under way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from qwenlab.driver import words
from qwenlab.driver.choice import Wishes, choose, drives, last_branch
from qwenlab.driver.packages import Flavour, Target, from_ubuntu_archive
from qwenlab.driver.state import DriverState
from qwenlab.driver.tables import ARCHITECTURES, BRANCHES, CONTAINERS, DEFAULT_BRANCH, Distribution, distribution
from qwenlab.facts.driver_text import branch as branch_of
from qwenlab.facts.driver_text import package_version
from qwenlab.gpu_data import family_of


class DriverWishes(Wishes, Protocol):
    """The settings that a decision rests on (qwenlab/settings/driver.py)."""

    @property
    def driver_version(self) -> str | None:
        """Exact version asked for."""


class Verdict(StrEnum):
    """What is due."""

    LEAVE = "leave"  # nothing, the driver works or is not ours to install
    INSTALL = "install"
    ACTIVATE = "activate"  # packages are right; the module must be loaded, or the host rebooted
    REFUSE = "refuse"


@dataclass(frozen=True)
class Decision:
    """The verdict with its reasons; `target` is set unless it is to refuse or to leave."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    target: Target | None = None


def decide(state: DriverState, wishes: DriverWishes) -> Decision:
    """What is due on a host in `state`."""
    if state.wsl:
        if words.kernel_numbers(state.running) < words.OLDEST_WSL_KERNEL:
            return _refuse(words.wsl_kernel_too_old(state.running))
        return _leave(*words.wsl(state))
    if not state.cards:
        return _leave("no NVIDIA card on the PCI bus")
    asked = wishes.asked_branch
    if state.works and not _other_driver_asked(state, wishes):
        return _working(state)
    if state.container in CONTAINERS:
        return _refuse(words.in_container(state.container))
    if state.runfile:
        return _refuse(words.RUNFILE)
    if waiting := _mismatch(state, wishes):
        return waiting
    chosen = choose(state.cards, wishes)
    if chosen.reasons:
        return _refuse(*chosen.reasons)
    target = _target(state, wishes, chosen.branch, chosen.flavour)
    if _present(state, target, exact=asked is not None):
        return _bring_up(state, target, chosen.notes)
    if obstacles := [*_system(state, target, wishes), *_other_world(state, target), *_secure_boot(state, target)]:
        return _refuse(*obstacles)
    return Decision(Verdict.INSTALL, chosen.notes, target)


def _working(state: DriverState) -> Decision:
    loaded = branch_of(state.loaded)
    if loaded is not None and loaded < DEFAULT_BRANCH:
        return _refuse(words.too_old(state.loaded or ""))
    lists = f"driver {state.loaded or '(unknown)'} lists {state.listed} of {len(state.cards)} cards"
    if state.module is None and state.boot_kernel != state.running:
        return _leave(lists, words.next_kernel_without_module(state))
    return _leave(lists)


def _other_driver_asked(state: DriverState, wishes: DriverWishes) -> bool:
    if wishes.asked_branch is None or state.loaded is None:
        return False
    if wishes.driver_version is not None:
        return state.loaded != wishes.driver_version
    return branch_of(state.loaded) != wishes.asked_branch


def _mismatch(state: DriverState, wishes: DriverWishes) -> Decision | None:
    """Module and libraries differ, and the libraries' version is fine: only the module is behind (no reinstall)."""
    if not state.mismatch or state.user_space is None or state.module != state.user_space or state.broken:
        return None
    branch = branch_of(state.user_space)
    if branch is None or branch < DEFAULT_BRANCH:
        return None
    if wishes.asked_branch not in (None, branch) or wishes.driver_version not in (None, state.user_space):
        return None
    flavour: Flavour = "open" if state.module_open else "proprietary"
    if not all(drives(flavour, card) for card in state.cards):
        return None
    target = Target(branch, flavour, wishes.driver_version, switched=state.nvswitches > 0)
    return Decision(Verdict.ACTIVATE, (words.mismatch(state),), target)


def _present(state: DriverState, target: Target, *, exact: bool) -> bool:
    """Whether module and libraries of the target lie there whole, so that nothing is to be installed."""
    if state.broken or state.module is None or state.user_space != state.module:
        return False
    if (state.module_open is True) != (target.flavour == "open"):
        return False
    if target.version is not None and state.module != target.version:
        return False
    branch = branch_of(state.module) or 0
    if exact or any((last := last_branch(card)) is not None and last < branch for card in state.cards):
        return branch == target.branch
    return branch >= DEFAULT_BRANCH


def _bring_up(state: DriverState, target: Target, notes: tuple[str, ...]) -> Decision:
    """The right driver is installed. If it also runs and still lists too few cards, packages do not mend it."""
    if state.loaded is None or state.loaded != state.module:
        return Decision(Verdict.ACTIVATE, (f"driver {state.module} is installed and not running", *notes), target)
    driven = [
        card
        for card in state.cards
        if drives(target.flavour, card) and (last_branch(card) or target.branch) >= target.branch
    ]
    if state.listed >= len(driven) > 0:
        return _leave(*notes, f"driver {state.loaded} lists every card that it drives")
    return _refuse(words.runs_without_cards(state))


def _target(state: DriverState, wishes: DriverWishes, branch: int, flavour: Flavour) -> Target:
    families = [family_of(card.device_id) for card in state.cards]
    blackwell = any(family is not None and family.architecture == "Blackwell" for family in families)
    signed = state.os == "ubuntu" and state.secure_boot and state.mok_enrolled is not True
    return Target(
        branch=branch,
        flavour=flavour,
        version=wishes.driver_version,
        signed=signed,
        switched=state.nvswitches > 0,
        nvlsm=state.nvswitches > 0 and blackwell,
    )


def _system(state: DriverState, target: Target, wishes: DriverWishes) -> list[str]:
    row = distribution(state.os, state.release)
    if row is None:
        return [words.unknown_system(state)]
    if state.architecture not in ARCHITECTURES:
        return [f"NVIDIA has no driver packages for a processor of type {state.architecture or '(unknown)'}"]
    found = []
    if not target.signed:
        found += _build(state, target, row)
    return found


def _build(state: DriverState, target: Target, row: Distribution) -> list[str]:
    """Whether the module of the branch can be built here at all."""
    branch = BRANCHES[target.branch]
    found = []
    kernel = re.match(r"(\d+)\.(\d+)", state.boot_kernel)
    if branch.kernel_below and kernel and (int(kernel[1]), int(kernel[2])) >= branch.kernel_below:
        found.append(words.kernel_too_new(target.branch, state.boot_kernel))
    dkms = state.packages.get("dkms")
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", dkms.version) if dkms else None
    have = (int(numbers[1]), int(numbers[2]), int(numbers[3])) if numbers else row.dkms
    if have < branch.dkms:
        found.append(words.dkms_too_old(target.branch, have, branch.dkms))
    return found


def _other_world(state: DriverState, target: Target) -> list[str]:
    """Ubuntu's archive and NVIDIA's repository name and split packages differently; the two never mix."""
    theirs = sorted(name for name in state.driver_packages if from_ubuntu_archive(name))
    if theirs and not target.signed:
        return [words.two_worlds(theirs)]
    return []


def _secure_boot(state: DriverState, target: Target) -> list[str]:
    if not state.secure_boot or state.mok_enrolled:
        return []
    if not target.signed:
        return [words.secure_boot(state)]
    if not BRANCHES[target.branch].in_ubuntu:
        return [f"Secure Boot is on, and Ubuntu signs no modules of driver {target.branch}: use 580 or 595"]
    if target.version is not None:
        return ["Secure Boot is on: Ubuntu's signed modules follow the branch; leave qwen_driver_version out"]
    return []


def after_install(state: DriverState, target: Target) -> tuple[str, ...]:
    """What is wrong although apt succeeded: judged for the kernel that will boot, not for the running one."""
    found = []
    if state.module is None:
        found.append(words.no_module(state))
    elif state.module != state.user_space:
        found.append(
            f"the module for kernel {state.boot_kernel} is {state.module}, the libraries are {state.user_space}: "
            "run dkms autoinstall, and update-initramfs -u -k all"
        )
    if not _is_wanted(state.user_space, target):
        wanted = f"driver {target.version or target.branch}"
        found.append(f"{wanted} was to be installed, and the host has {state.user_space}: apt-cache policy tells why")
    return tuple(found)


def wrong_candidates(
    candidates: dict[str, str], names: tuple[str, ...], fabric: tuple[str, ...], target: Target
) -> list[str]:
    """Why apt would not install what it should; empty when it would.

    Args:
        candidates: package to the version that apt would take.
        names: the driver's set, the package that shows the version first.
        fabric: the fabric manager's packages among them.
    """
    missing = [name for name in names if name not in candidates]
    if missing:
        return [f"the repository has no {', '.join(missing)} for this host: is its mirror complete?"]
    offered = package_version(candidates[names[0]])
    if not _is_wanted(offered, target):
        return [
            f"apt would install driver {offered} ({names[0]} {candidates[names[0]]}) instead of "
            f"{target.version or target.branch}: see apt-cache policy {names[0]} for the source or pin that wins"
        ]
    for name in fabric[:1]:
        lockstep = package_version(candidates[name])
        if lockstep != offered:
            return [
                f"the fabric manager would be {lockstep} and the driver {offered}: they must be the same; name a "
                f"version that the repository has both of (qwen_driver_version = '{lockstep}')"
            ]
    return []


def _is_wanted(version: str | None, target: Target) -> bool:
    return version == target.version if target.version else branch_of(version) == target.branch


def _leave(*reasons: str) -> Decision:
    return Decision(Verdict.LEAVE, reasons)


def _refuse(*reasons: str) -> Decision:
    return Decision(Verdict.REFUSE, reasons)

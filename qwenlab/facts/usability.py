"""Which cards a plan may use, and why not: one rule an entry, the first that objects names the reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from qwenlab.facts import xids
from qwenlab.facts.merge import Merged
from qwenlab.facts.readings import FOREIGN_DRIVERS, PROHIBITED

# vLLM 0.33 documentation, installation/gpu: "GPU: compute capability 7.0 or higher".
OLDEST_COMPUTE_CAPABILITY = (7, 0)
_OLDEST = ".".join(map(str, OLDEST_COMPUTE_CAPABILITY))
# Architectures whose cards differ in compute capability, all of them below that.
BEFORE_CAPABILITIES = ("Fermi", "Kepler")
# GPUs inside Jetson boards: PyTorch's and vLLM's packages hold no kernels for them, and those of a card with the same
# major number do not run there (CUDA C++ Programming Guide, "Binary Compatibility": not between desktop and Tegra).
EMBEDDED = ((5, 3), (6, 2), (7, 2), (8, 7))
# Below this a card holds no useful share of a 27B model beside a larger one (its smallest checkpoint has about 17 GB).
SMALLEST_HELPER_GIB = 7.5
# PyTorch wheels by CUDA version: (oldest, newest) compute capability with kernels inside (pytorch RELEASE.md, matrix).
_WHEELS: tuple[tuple[tuple[int, int], tuple[tuple[int, int], tuple[int, int]]], ...] = (
    ((13, 0), ((7, 5), (12, 1))),
    ((12, 8), ((5, 0), (12, 1))),
    ((11, 8), ((5, 0), (9, 0))),
    ((11, 1), ((3, 7), (8, 6))),
)


@dataclass(frozen=True)
class Situation:
    """What the rules look at besides the card: a driver that answers nothing, a torch build, the largest card, links
    that nobody routes, and a driver whose memory manager has given up."""

    driver_failure: str | None
    torch_cuda: tuple[int, int] | None
    largest_mib: int
    unrouted_nvswitch: bool
    uvm_failed: bool = False


@dataclass(frozen=True)
class Objection:
    """Why a card is left out: a stable code and words for its owner."""

    code: str
    text: str


def objection(card: Merged, situation: Situation) -> Objection | None:
    """The reason why the card cannot be planned, None if it can."""
    return next((found for rule in _RULES if (found := rule(card, situation))), None)


def torch_cuda(text: str | None) -> tuple[int, int] | None:
    """(12, 6) of a note like "12.6 (torch cu126)"."""
    match = re.search(r"torch\s*\S*\s*cu(1[0-9])([0-9])\b", text or "")
    return (int(match[1]), int(match[2])) if match else None


def _no_driver(card: Merged, situation: Situation) -> Objection | None:
    if situation.driver_failure is None:
        return None
    return Objection(situation.driver_failure, "the driver does not answer, so nothing about the card is certain")


def _held(card: Merged, situation: Situation) -> Objection | None:
    if card.kernel_driver not in FOREIGN_DRIVERS:
        return None
    return Objection(
        "held_by_other_driver",
        f"bound to {card.kernel_driver}, which keeps it for something else (a virtual machine); take it out of that "
        "driver's ids and reboot to use it here",
    )


def _fault(card: Merged, situation: Situation) -> Objection | None:
    if not card.faults:
        return None
    return Objection("gpu_fault", f"{'; '.join(card.faults)}: reboot, then test the card alone before using the others")


def _xid(card: Merged, situation: Situation) -> Objection | None:
    fatal = [xids.told(code) for code in card.xids if code in xids.FATAL]
    if not fatal:
        return None
    return Objection("gpu_xid", f"the kernel log of this boot has Xid {', '.join(fatal)}: reboot before using the card")


def _uvm(card: Merged, situation: Situation) -> Objection | None:
    if not situation.uvm_failed:
        return None
    return Objection("uvm_failed", "CUDA's memory manager in the kernel gave up: no program starts until a reboot")


def _mig(card: Merged, situation: Situation) -> Objection | None:
    if not card.mig_enabled:
        return None
    state = f"is split into {len(card.mig)} MIG instances" if card.mig else "is in MIG mode"
    return Objection("mig_enabled", f"{state}; switch MIG off to use the whole card (nvidia-smi -mig 0)")


def _prohibited(card: Merged, situation: Situation) -> Objection | None:
    if card.compute_mode != PROHIBITED:
        return None
    return Objection(
        "compute_prohibited", "its compute mode lets no program use it (nvidia-smi -c DEFAULT allows it again)"
    )


def _too_old(card: Merged, situation: Situation) -> Objection | None:
    capability = card.compute_capability
    if capability is None and card.architecture in BEFORE_CAPABILITIES:
        return Objection(
            "compute_capability_too_old",
            f"a {card.architecture} card; vLLM needs compute capability {_OLDEST} or newer",
        )
    if capability is None or capability >= OLDEST_COMPUTE_CAPABILITY:
        return None
    return Objection(
        "compute_capability_too_old",
        f"compute capability {capability[0]}.{capability[1]}; vLLM needs {_OLDEST} or newer",
    )


def _embedded(card: Merged, situation: Situation) -> Objection | None:
    capability = card.compute_capability
    if capability not in EMBEDDED:
        return None
    return Objection(
        "embedded_gpu",
        f"the GPU of a Jetson board (compute capability {capability[0]}.{capability[1]}), for which vLLM's packages "
        "hold no kernels; NVIDIA builds its own for these boards",
    )


def _wheel(card: Merged, situation: Situation) -> Objection | None:
    capability = card.compute_capability
    if capability is None or situation.torch_cuda is None:
        return None
    span = next((span for cuda, span in _WHEELS if situation.torch_cuda >= cuda), None)
    if span is None or span[0] <= capability <= span[1]:
        return None
    major, minor = situation.torch_cuda
    return Objection(
        "runtime_lacks_architecture",
        f"PyTorch there is built for CUDA {major}.{minor}, without kernels for sm_{capability[0]}{capability[1]}",
    )


def _nvswitch(card: Merged, situation: Situation) -> Objection | None:
    if not situation.unrouted_nvswitch:
        return None
    return Objection("fabricmanager_not_running", "sits behind an NVSwitch that nobody routes: CUDA refuses to start")


def _too_small(card: Merged, situation: Situation) -> Objection | None:
    """Beside a larger card only: alone on its host the planner says that the model does not fit."""
    total = card.memory_total_mib
    if total is None or total >= SMALLEST_HELPER_GIB * 1024 or situation.largest_mib < SMALLEST_HELPER_GIB * 1024:
        return None
    return Objection("gpu_too_small", f"{total} MiB hold no useful share of the model beside a larger card")


_RULES: tuple[Callable[[Merged, Situation], Objection | None], ...] = (
    _held,
    _no_driver,
    _fault,
    _xid,
    _uvm,
    _mig,
    _prohibited,
    _too_old,
    _embedded,
    _nvswitch,
    _wheel,
    _too_small,
)

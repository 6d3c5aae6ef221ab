"""From `HostInventory` to the planner's cards: the inventory's facts joined with the device table's figures."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low

from qwenlab.gpu_data import GpuSpec, Segment, find, of_cut_name, table
from qwenlab.host_inventory import Gpu, HostInventory
from qwenlab.pci_address import bus_id
from qwenlab.planner.capabilities import ADA
from qwenlab.planner.shape import Card

MIB_PER_GIB = 1024
LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}  # one lane, one direction, after line coding
OLDEST = (7, 5)
WSL2_SHARE_GIB = 0.48  # HyperQwen docs/gotchas.md 53: about 490 MiB that the card reports and nobody can allocate
# Of the RAM that is available, where the card has no memory of its own (GB10): asked for 70 %, start-up took up to
# 29 GiB more and the host stopped answering (vllm-project/vllm 46307, 56824). MemAvailable counts (llamastash 80).
UNIFIED_SHARE = 0.6
UNKNOWN_BANDWIDTH_GB_S = 300.0
UNKNOWN_TFLOPS = 30.0
OF_OTHER_RUNTIMES = "runtime_lacks_architecture"  # of a PyTorch that was found there; the release brings its own
GAMING = (Segment.CONSUMER, Segment.LAPTOP)
FP4_OVER_FP16 = 8  # both dense: RTX 5090 has 1676 and 209.5 (RTX Blackwell GPU architecture whitepaper, appendix A)


@dataclass(frozen=True)
class LeftOut:
    """A card that takes no part in planning, and why, in words for its owner."""

    uuid: str
    code: str
    why: str


def cards_of(inventory: HostInventory, wanted: list[str] | None = None) -> tuple[tuple[Card, ...], tuple[LeftOut, ...]]:
    """The cards to plan with, in PCI bus order, and those left out.

    Args:
        inventory: the host.
        wanted: UUIDs, PCI bus ids or indexes; None takes every usable card.
    """
    cards, left = [], []
    lacking = {one.gpu for one in inventory.diagnoses if one.code == OF_OTHER_RUNTIMES}
    for gpu in inventory.gpus:
        name = gpu.uuid or gpu.pci_bus_id or str(gpu.index)
        reason = _why_not(gpu, inventory, wanted, lacking)
        if reason is not None:
            left.append(LeftOut(name, *reason))
        else:
            cards.append(_card(gpu, name, inventory))
    return tuple(cards), tuple(left)


def names(word: str, gpu: Gpu) -> bool:
    """Whether an entry of qwen_cards names this card, in any spelling that the driver's own tools print."""
    given = word.strip().casefold()
    known = {one.casefold() for one in (gpu.uuid, gpu.pci_bus_id, str(gpu.index)) if one}
    # a card is a function of a device, and a word without one names no card
    address = bus_id(given) if "." in given else None
    return bool({given, address} & known)


def _why_not(
    gpu: Gpu, inventory: HostInventory, wanted: list[str] | None, lacking: set[str | None]
) -> tuple[str, str] | None:
    if wanted is not None and not any(names(word, gpu) for word in wanted):
        return "not-selected", "qwen_cards does not name it"
    if not gpu.usable and not {gpu.uuid, gpu.pci_bus_id, str(gpu.index)} & lacking:
        return "unusable", gpu.unusable_because or "the driver cannot use it"
    if gpu.mig_enabled:
        return "mig", "MIG is on: its slices are too small and cannot be joined; turn it off with nvidia-smi -mig 0"
    if not gpu.memory_total_mib and not of_ram(gpu, inventory):
        why = ", and the size of the host's RAM, which it shares, could not either" if gpu.memory_unified else ""
        if not why and gpu.name:
            spec = spec_of(gpu)
            sizes = " or ".join(f"{size:g}" for size in sorted(spec.memory_gib)) if spec else ""
            why = f", and {gpu.name} is sold with {sizes} GiB" if spec else ""
            why = why or f", and the device table has no card called {gpu.name!r}"
        return "memory-unknown", f"its memory size could not be read{why}"
    capability = gpu.compute_capability or _spec_capability(gpu)
    if capability is None:
        return "capability-unknown", "its compute capability could not be read and the device table lacks the card"
    if capability < OLDEST:
        major, minor = capability
        return (
            "too-old",
            f"compute capability {major}.{minor}: CUDA 13 and the engine need {OLDEST[0]}.{OLDEST[1]} or newer",
        )
    return None


def of_ram(gpu: Gpu, inventory: HostInventory) -> bool:
    """Whether the card's memory is the host's RAM, of known size."""
    return gpu.memory_unified and not gpu.memory_total_mib and bool(inventory.ram_total_gib)


def kept_gib(inventory: HostInventory) -> float:
    """GiB of each card that no engine may have, whatever other programs end: WSL2's share, or the host's of its RAM."""
    if inventory.wsl2:
        return WSL2_SHARE_GIB
    shared = any(of_ram(gpu, inventory) for gpu in inventory.gpus)
    return (1 - UNIFIED_SHARE) * _available_gib(inventory) if shared else 0.0


def _available_gib(inventory: HostInventory) -> float:
    available = inventory.ram_available_gib
    return (inventory.ram_total_gib or 0.0) if available is None else available


def _memory_gib(gpu: Gpu, inventory: HostInventory) -> tuple[float, float]:
    """(total, taken by others) of a card."""
    if of_ram(gpu, inventory):
        total = inventory.ram_total_gib or 0.0
        return total, total - _available_gib(inventory) + kept_gib(inventory)
    own = (gpu.memory_total_mib or 0) - (gpu.memory_reserved_mib or 0)
    return own / MIB_PER_GIB, (gpu.memory_used_mib or 0) / MIB_PER_GIB + kept_gib(inventory)


def spec_of(gpu: Gpu) -> GpuSpec | None:
    """The data sheet; of several cards that a cut name can stand for, the slowest one's."""
    spec = find(name=gpu.name, device_id=gpu.pci_device_id, memory_mib=gpu.memory_total_mib)
    return spec or min(_alike(gpu), key=lambda card: card.bandwidth_gb_s, default=None)


def is_cut(gpu: Gpu) -> bool:
    """Whether nothing tells which of several cards this is."""
    return len(_alike(gpu)) > 1 and find(device_id=gpu.pci_device_id) is None


def _alike(gpu: Gpu) -> tuple[GpuSpec, ...]:
    return of_cut_name(gpu.name or "", gpu.memory_total_mib)


def _spec_capability(gpu: Gpu) -> tuple[int, int] | None:
    spec = spec_of(gpu)
    return spec.compute_capability if spec else None


def _card(gpu: Gpu, name: str, inventory: HostInventory) -> Card:
    spec = spec_of(gpu)
    total, in_use = _memory_gib(gpu, inventory)
    capability = gpu.compute_capability or _spec_capability(gpu) or OLDEST
    return Card(
        uuid=name,
        index=gpu.index,
        name=gpu.name or (spec.name if spec else "unknown card"),
        compute_capability=capability,
        memory_gib=total,
        in_use_gib=in_use,
        bandwidth_gb_s=spec.bandwidth_gb_s if spec else UNKNOWN_BANDWIDTH_GB_S,
        fp16_tflops=fp16_tflops(spec) if spec else UNKNOWN_TFLOPS,
        fp8_tflops=_fp8_tflops(spec) if spec else None,
        int8_tops=spec.int8_tops if spec else None,
        pcie_gb_s=_pcie_gb_s(gpu),
        power_limit_w=gpu.power.limit_w,
        display_active=bool(gpu.display_active),
    )


def fp16_tflops(spec: GpuSpec) -> float:
    """Dense rate with 16-bit inputs; where no data sheet states it, an eighth of the FP4 rate (Blackwell's ratio), else
    as much for a byte of bandwidth as the middle one of the family's gaming cards, or of its other cards."""
    if spec.fp16_tflops is not None:
        return spec.fp16_tflops
    if spec.fp4_tflops is not None:
        return spec.fp4_tflops / FP4_OVER_FP16
    gaming = spec.segment in GAMING
    ratios = [
        card.fp16_tflops / card.bandwidth_gb_s
        for card in table().cards
        if card.fp16_tflops is not None and card.family == spec.family and (card.segment in GAMING) == gaming
    ]
    if not ratios or spec.segment is Segment.MINING:
        return UNKNOWN_TFLOPS
    return median_low(ratios) * spec.bandwidth_gb_s


def _fp8_tflops(spec: GpuSpec) -> float | None:
    """Dense rate with FP8 inputs: twice the 16-bit one from Ada on, where no data sheet states it."""
    if spec.fp8_tflops is None and spec.compute_capability is not None and spec.compute_capability >= ADA:
        return 2 * fp16_tflops(spec)
    return spec.fp8_tflops


def _pcie_gb_s(gpu: Gpu) -> float:
    """One direction of the narrowest part of the path; a slot of 3.0 x8 where nothing is known."""
    pcie = gpu.pcie
    generations = [value for value in (pcie.generation_max, pcie.generation_slot) if value]
    widths = [value for value in (pcie.width_max, pcie.width_slot, pcie.width_now) if value]
    return LANE_GB_S.get(min(generations, default=3), LANE_GB_S[3]) * min(widths, default=8)

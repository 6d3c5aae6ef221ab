"""Diagnoses of cards and of what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qwenlab.facts import xids
from qwenlab.facts.findings import Findings, error, info, warning
from qwenlab.facts.readings import EXCLUSIVE, NVSWITCH_BOARD, REPAIR_FAILED, REPAIR_PENDING
from qwenlab.host_inventory import Diagnosis

_NARROW_SHARE = 0.5
_BAR1_FULL_SHARE = 0.9
_OTHERS_MIB = 512
_LEFT_OUT_AS_ERROR = ("gpu_fault", "gpu_xid")
# Reasons that hold for every card, told once for the host.
_LEFT_OUT_ONCE = {
    "fabricmanager_not_running": (
        "SXM boards without any NVLink between them: the fabric manager is not running, or its version is not "
        "the driver's. `systemctl status nvidia-fabricmanager`; the host is not planned as a PCIe box."
    ),
    "uvm_failed": (
        "CUDA's memory manager in the kernel met a fatal error (kernel log): programs that run go on, no new one "
        "starts on any card, though nvidia-smi looks well. Reboot; when it comes again, look for an Xid before it."
    ),
}


def left_out(findings: Findings) -> Iterable[Diagnosis]:
    """One line a card that no plan may use."""
    said: set[str] = set()
    for card, why in zip(findings.cards, findings.objections, strict=True):
        if why is None or why.code == findings.driver_failure or why.code in said:
            continue
        if why.code in _LEFT_OUT_ONCE:
            said.add(why.code)
            yield error(why.code, _LEFT_OUT_ONCE[why.code])
        elif why.code in _LEFT_OUT_AS_ERROR:
            yield error(why.code, f"{card.label}: {why.text}.", gpu=card.identity)
        else:
            yield info(why.code, f"{card.label}: {why.text}.", gpu=card.identity)


def earlier_xids(findings: Findings) -> Iterable[Diagnosis]:
    """Xid codes that a program's own fault can cause; the card is not blamed."""
    for card, why in zip(findings.cards, findings.objections, strict=True):
        if card.xids and not (why and why.code in _LEFT_OUT_AS_ERROR):
            codes = ", ".join(map(xids.told, card.xids))
            yield warning("xid_seen", f"{card.label}: the kernel log of this boot has Xid {codes}.", gpu=card.identity)


def damaged_text(findings: Findings) -> Iterable[Diagnosis]:
    """Spots where a source was cut, wrapped or contradicted itself: never a silent wrong count."""
    read = findings.sources
    for name, why in read.unreadable.items():
        yield warning("source_unreadable", f"{name} could not be read: {why}.")
    if read.timed_out and findings.driver_failure != "probe_timeout":
        yield warning("source_timed_out", f"No answer in time from: {', '.join(read.timed_out)}.")
    for reading in read.driver_readings:
        for spot in reading.damage:
            yield warning("source_damaged", f"nvidia-smi or NVML: {spot}.")
        for note in reading.notes:
            yield info("source_incomplete", f"nvidia-smi: {note}; a card behind its end would not be seen.")
    for spot in read.topology.damage if read.topology else ():
        yield warning("topology_damaged", f"topo -m: {spot}.")


def conflicts(findings: Findings) -> Iterable[Diagnosis]:
    """Sources that tell different things."""
    for text in dict.fromkeys(findings.conflicts):
        yield warning("sources_disagree", f"{text}.")


def peers(findings: Findings) -> Iterable[Diagnosis]:
    """What the driver says about peer access over PCIe, and that its yes is no proof.

    The same label and the same OK move 56 GB/s on one box and hang on another (local-inference-lab/rtx6kpro 15). The
    usual reason is an IOMMU that translates (NCCL user guide, "PCI Access Control Services (ACS)").
    """
    plain = [pair for pair in findings.host.pairs if not pair.nvlink_lanes]
    refused = sorted({pair.peer_refusal for pair in plain if pair.peer_read is False and pair.peer_refusal})
    if refused:
        yield info("peer_access_not_granted", f"The driver grants no peer access over PCIe ({', '.join(refused)}).")
    for pair in findings.host.pairs:
        if pair.nvlink_lanes and pair.peer_read is False:
            yield warning(
                "nvlink_refused",
                f"Cards {pair.a} and {pair.b} have {pair.nvlink_lanes} NVLinks between them, and the driver grants no "
                f"peer access ({pair.peer_refusal}): look for NVreg_ options in /etc/modprobe.d and, in a virtual "
                "machine, at how the cards are passed through.",
            )
    consumer = any(card.spec and not card.spec.p2p_by_driver for card in findings.cards)
    if any(pair.peer_read for pair in plain):
        extra = "; on GeForce cards it proves a patched module, whatever the version says" if consumer else ""
        translated = (
            " The IOMMU translates the cards' addresses here, the usual reason why they do not: switch it off in the "
            "firmware, or boot with iommu=pt."
            if findings.host.iommu_translates
            else ""
        )
        yield info(
            "peer_access_untested",
            f"The driver grants peer access over PCIe{extra}. Only the peer test (qwen_verify_peers) shows whether "
            f"copies arrive.{translated}",
        )


def lost_links(findings: Findings) -> Iterable[Diagnosis]:
    """A card of an NVSwitch board without a link while its neighbours have theirs: the fabric manager took it out of
    the fabric, as it does by default where a link does not come up (its user guide, ACCESS_LINK_FAILURE_MODE)."""
    linked = {card for pair in findings.host.pairs if pair.nvlink_lanes for card in (pair.a, pair.b)}
    for gpu in findings.host.gpus:
        board = gpu.usable and NVSWITCH_BOARD.search(gpu.name or "")
        if board and len(linked) > 1 and gpu.index not in linked:
            yield warning(
                "nvlink_lost",
                f"{gpu.name} [{gpu.index}] has no NVLink while its neighbours have: it works alone, and slowly "
                "together with them. Look at the fabric manager's log and for its Xids, then reboot.",
                gpu=gpu.uuid or gpu.pci_bus_id,
            )


def sensors(findings: Findings) -> Iterable[Diagnosis]:
    """Fan or power that answer ERR! while everything else does: the card computes (Azure/azhpc-diagnostics 77)."""
    for card, why in zip(findings.cards, findings.objections, strict=True):
        if card.sensor_fault and why is None:
            yield warning(
                "sensor_unreadable",
                f"{card.label}: fan or power answer {card.sensor_fault}. Often it passes; if it stays, nothing watches "
                "this card's fan: look at its cables, and at its temperature under load.",
                gpu=card.identity,
            )


def worn_memory(findings: Findings) -> Iterable[Diagnosis]:
    """Memory rows that the card exchanges at its next reset, or no longer can. With a pending exchange new work is
    safe, a failed one is a reason to return the card (NVIDIA, GPU Memory Error Management)."""
    for card in findings.cards:
        if card.memory_repair == REPAIR_FAILED:
            yield warning(
                "memory_worn",
                f"{card.label}: broken memory rows and no spare ones left; the card is due for replacement.",
                gpu=card.identity,
            )
        elif card.memory_repair == REPAIR_PENDING:
            yield info(
                "memory_repair_pending",
                f"{card.label}: broken memory is replaced by spare rows at the next reset; reboot at a quiet hour.",
                gpu=card.identity,
            )


def licences(findings: Findings) -> Iterable[Diagnosis]:
    """A virtual GPU that has no licence slows down, then refuses new CUDA contexts (NVIDIA/gpu-operator 220)."""
    for card in findings.cards:
        if (card.licence or "").lower().startswith("unlicensed"):
            yield warning(
                "vgpu_unlicensed",
                f"{card.label}: {card.licence}. Without a licence a virtual GPU is slowed down after a while and "
                "refuses new programs; see /etc/nvidia/gridd.conf, `systemctl status nvidia-gridd` and the clock.",
                gpu=card.identity,
            )


def exclusive(findings: Findings) -> Iterable[Diagnosis]:
    """A compute mode that admits one program; a second one, as the peer test or a rehearsal, is refused the card."""
    for card in findings.cards:
        if card.compute_mode == EXCLUSIVE:
            yield info(
                "compute_exclusive",
                f"{card.label}: its compute mode admits one program at a time, and refuses an engine while another "
                "holds the card (nvidia-smi -c DEFAULT lifts that).",
                gpu=card.identity,
            )


def bar1(findings: Findings) -> Iterable[Diagnosis]:
    """Peer mappings live in BAR1; a full one refuses the next."""
    for card in findings.cards:
        total, used = card.bar1_total_mib, card.bar1_used_mib
        if total and used is not None and used >= _BAR1_FULL_SHARE * total:
            yield warning("bar1_full", f"{card.label}: {used} of {total} MiB of BAR1 are in use.", gpu=card.identity)


def narrow_slot(findings: Findings) -> Iterable[Diagnosis]:
    """Fewer lanes than the card has; the generation of an idle link says nothing, the width does not drop."""
    for card in findings.cards:
        now, most = card.width_now, card.width_max
        spec = card.spec
        lanes = max(value for value in (most, spec.pcie_lanes if spec else None, 0) if value is not None)
        if now and lanes and now <= _NARROW_SHARE * lanes:
            yield info("slot_narrow", f"{card.label}: {now} of {lanes} PCIe lanes are in use.", gpu=card.identity)


def replays(findings: Findings) -> Iterable[Diagnosis]:
    """PCIe had to repeat: signal trouble, which froze whole hosts at Gen5 (vllm-project/vllm 14628)."""
    for card in findings.cards:
        if card.replays:
            yield warning(
                "pcie_replays",
                f"{card.label}: PCIe repeated {card.replays} transfers. Update the BIOS, try the slot at Gen4.",
                gpu=card.identity,
            )


def display(findings: Findings) -> Iterable[Diagnosis]:
    """A desktop takes memory from a serving card; the planner subtracts what is in use."""
    for card in findings.cards:
        if card.display_active:
            used = f", {card.memory_used_mib} MiB in use now" if card.memory_used_mib is not None else ""
            yield info("display_on_card", f"{card.label} drives a display{used}.", gpu=card.identity)


def occupied(findings: Findings) -> Iterable[Diagnosis]:
    """Other programs hold the card."""
    for card in findings.cards:
        used = (card.memory_used_mib or 0) - (card.memory_reserved_mib or 0)
        if not card.display_active and (card.processes or 0) > 0 and used > _OTHERS_MIB:
            yield info(
                "memory_in_use",
                f"{card.label}: {card.processes} programs hold {card.memory_used_mib} MiB.",
                gpu=card.identity,
            )


def power(findings: Findings) -> Iterable[Diagnosis]:
    """Cards of one model with different power limits: in tensor parallel the slowest paces all."""
    by_name: dict[str, set[float]] = {}
    for card in findings.cards:
        if card.name and card.limit_w:
            by_name.setdefault(card.name, set()).add(card.limit_w)
    for name, limits in by_name.items():
        if len(limits) > 1:
            values = ", ".join(f"{limit:g} W" for limit in sorted(limits))
            yield warning(
                "unequal_power_limits", f"{name}: limits differ ({values}); the slowest card paces the others."
            )


def unified(findings: Findings) -> Iterable[Diagnosis]:
    """Boards whose GPU memory is the host's."""
    for card in findings.cards:
        if card.memory_unified:
            yield info(
                "unified_memory",
                f"{card.label} shares the host's RAM; NVML names no size of its own.",
                gpu=card.identity,
            )


RULES: tuple[Callable[[Findings], Iterable[Diagnosis]], ...] = (
    left_out,
    earlier_xids,
    damaged_text,
    conflicts,
    peers,
    lost_links,
    sensors,
    worn_memory,
    licences,
    exclusive,
    bar1,
    narrow_slot,
    replays,
    display,
    occupied,
    power,
    unified,
)

"""Diagnoses from what the kernel log names as the reason: a refused card, a missing file, cables, address space."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qwenlab.facts.driver_text import branch
from qwenlab.facts.findings import Findings, error, warning
from qwenlab.facts.kernel_log import Refusal
from qwenlab.gpu_data import family_of, find
from qwenlab.host_inventory import Diagnosis

# Cards after the failed one are refused to CUDA too: cuInit answers 101 for all of them (public reports of a 2060 SUPER
# beside a GTX 1070 and of three cards with one unpowered, each with a cable left off).
_CUDA_101 = "until then CUDA may refuse every card of the host (cuInit error 101)"
_TEXTS = {
    "bar_space": (
        "The firmware left no address space for the card's memory window (BAR1). Switch on 'Above 4G decoding' and "
        "'Resizable BAR' in the firmware, or boot with pci=realloc; a virtual machine needs a larger 64-bit window "
        "from its host; reinstalling the driver does not help."
    ),
    # NVIDIA/open-gpu-kernel-modules pull request 1109: seen behind Thunderbolt; without the enlargement the card runs.
    "bar_resize_failed": (
        "The driver gave a card up because its memory window (BAR1) could not be enlarged, as behind Thunderbolt: "
        "`options nvidia NVreg_EnableResizableBar=0` in /etc/modprobe.d, without any file that sets it to 1, then "
        "reboot. The card runs with the small window."
    ),
    "module_key_rejected": (
        "Secure Boot rejected the module's signature: use the distribution's pre-signed linux-modules-nvidia "
        "packages, or enrol the DKMS key at the firmware screen (`mokutil --import`)."
    ),
    "module_of_other_kernel": (
        "The NVIDIA module was built for another kernel: install this kernel's headers and run `dkms autoinstall`, or "
        "boot the kernel that it was built for."
    ),
    "firmware_missing": (
        "The driver found no firmware of its own version (gsp_*.bin under /lib/firmware/nvidia): install the package "
        "that holds it (libnvidia-..., nvidia-firmware, firmware-nvidia-gsp) at the module's version."
    ),
}


def conditions(findings: Findings) -> Iterable[Diagnosis]:
    """Reasons that hold for the host."""
    log = findings.sources.kernel
    found = [condition for condition in log.conditions if condition in _TEXTS]
    if "bar_space" not in found and _no_room(findings):
        found.insert(0, "bar_space")
    for condition in found:
        yield error(condition, _TEXTS[condition])


def _no_room(findings: Findings) -> bool:
    """A card without its memory window. One that the driver drives got it after all; other devices are no matter."""
    idle = {
        card.bus_id
        for card, why in zip(findings.cards, findings.objections, strict=True)
        if why is not None or findings.driver_failure
    }
    unknown = not any(card.bus_id for card in findings.cards)
    return any(address in idle or unknown for address in findings.sources.kernel.unplaced)


def not_woken(findings: Findings) -> Iterable[Diagnosis]:
    """Cards that were put to sleep and did not come back; one that works by now is no matter."""
    healthy = {card.bus_id for card, why in zip(findings.cards, findings.objections, strict=True) if why is None}
    lost = [address for address in findings.sources.kernel.not_woken if address not in healthy]
    if lost:
        yield error(
            "card_not_woken",
            f"{', '.join(lost)} did not wake from its sleep (D3): reboot with pcie_port_pm=off pcie_aspm=off on the "
            "kernel's command line; a card that was passed through wants a cold start of the machine that holds it.",
        )


def not_started(findings: Findings) -> Iterable[Diagnosis]:
    """Cards that the driver found and could not initialise; a missing power cable is the one reason it names."""
    log = findings.sources.kernel
    cards = ", ".join(f"{address} (code {code})" for address, code in log.not_started.items())
    if "insufficient_power" in log.conditions:
        where = ", ".join(log.not_started) or "a card"
        yield error(
            "insufficient_power",
            f"The kernel log says that {where} lacks power: switch off, plug in all of its power cables or take it "
            f"out; {_CUDA_101}.",
        )
    elif "adapter_failed" in log.conditions and "firmware_missing" not in log.conditions and not log.not_woken:
        yield error(
            "adapter_failed",
            f"The driver could not initialise a card (RmInitAdapter){': ' + cards if cards else ''}; see the lines "
            f"before it in the kernel log. {_CUDA_101[0].upper()}{_CUDA_101[1:]}.",
        )


def refused(findings: Findings) -> Iterable[Diagnosis]:
    """Cards that this module, or this version of it, does not drive."""
    log = findings.sources.kernel
    said: set[str] = set()
    for refusal in log.refusals:
        text = _refused(refusal)
        if text and text not in said:
            said.add(text)
            yield error(refusal.reason, text, gpu=refusal.address)
    reasons = {refusal.reason for refusal in log.refusals}
    for condition, text in (
        ("needs_open_module", "A card needs the open kernel module (kernel log); the closed one is installed."),
        ("unsupported_by_driver", "The installed driver branch does not support a card in this host."),
    ):
        if condition in log.conditions and condition not in reasons:
            yield error(condition, text)


def _refused(refusal: Refusal) -> str | None:
    spec = find(device_id=refusal.device_id) if refusal.device_id else None
    card = spec.name if spec else refusal.name or "A card"
    where = f" at {refusal.address}" if refusal.address else ""
    if refusal.reason == "needs_open_module":
        return f"{card}{where} needs the open kernel module; the proprietary one is installed."
    if refusal.reason == "needs_proprietary_module":
        return f"{card}{where} has no GSP and works with the proprietary kernel module only; the open one is installed."
    if refusal.reason != "unsupported_by_driver":
        return None
    family = family_of(refusal.device_id) if refusal.device_id else None
    driver = f"driver {refusal.driver}" if refusal.driver else "the installed driver"
    last = refusal.last_branch or (family.last_driver_branch if family else None)
    if family is None and last is None:
        return f"{card}{where} is not supported by {driver}."
    if last is not None and (branch(refusal.driver) or last + 1) > last:
        return f"{card}{where} is no longer supported by {driver}: its last branch is {last}."
    return f"{card}{where} is newer than {driver}: install a newer branch."


def bus_errors(findings: Findings) -> Iterable[Diagnosis]:
    """PCIe errors that the kernel saw: signal trouble of slot, riser or cable, as replays are."""
    for card in findings.cards:
        severity = findings.sources.kernel.bus_errors.get(card.bus_id or "")
        if severity:
            yield warning(
                "pcie_errors",
                f"{card.label}: the kernel log has PCIe errors ({severity.lower()}). Seat the card, look at its riser "
                "or cable, update the BIOS, try the slot one PCIe generation lower.",
                gpu=card.identity,
            )


def iommu(findings: Findings) -> Iterable[Diagnosis]:
    """Transfers of a card that the IOMMU refused: peer copies through it are lost, and their reader waits forever."""
    known = {card.bus_id for card in findings.cards}
    hit = [address for address in findings.sources.kernel.iommu_faults if address in known]
    if hit:
        yield warning(
            "iommu_faults",
            f"The IOMMU refused transfers of {', '.join(hit)} (kernel log): peer copies hang there. Boot with iommu=pt "
            "or switch the IOMMU off in the firmware, or leave peer access off.",
        )


def switches(findings: Findings) -> Iterable[Diagnosis]:
    """Fatal errors of the NVSwitches; every program on the cards behind them is ended."""
    codes = findings.sources.kernel.switch_errors
    if codes:
        yield warning(
            "nvswitch_error",
            f"An NVSwitch reported a fatal error (SXid {', '.join(codes)}): reboot, look at the fabric manager's log.",
        )


RULES: tuple[Callable[[Findings], Iterable[Diagnosis]], ...] = (
    conditions,
    not_woken,
    not_started,
    refused,
    bus_errors,
    iommu,
    switches,
)

"""What the kernel log of this boot says about NVIDIA cards: Xid events, refused cards, failed starts, missing address
space."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from qwenlab.facts.terminal import plain
from qwenlab.pci_address import bus_id

RECOVERY = 154
# nv_gpu_ops.c, uvm_global.c: after it CUDA does not start on any card (NVIDIA/open-gpu-kernel-modules 1342).
UVM_FAILED = r"uvm encountered global fatal error|nvidia-uvm: [^\n]*Encountered a global fatal error"
_ADDRESS = r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?"
# On a card that is split, the instance stands behind the address: "(PCI:0000:3b:00 GPU-I:01 GPU-CI:02)" (kernel_rc.c).
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)(?: GPU-I:[^)\n]*)?\): ([0-9]{1,3})([^\n]*)")
_RECOVERY_TO = re.compile(r"recovery action changed from .*? to 0x[0-9a-fA-F]+ \(([^)]*)\)")
_FELL_OFF = re.compile(rf"NVRM:[^\n]*?(?:PCI:|GPU )?({_ADDRESS})[^\n]*fallen off")
# drivers/pci/pci.c, of a function whose configuration space reads as ones when it is woken.
_NOT_WOKEN = re.compile(
    rf"(?:pci|nvidia|vfio-pci) ({_ADDRESS}): Unable to change power state from \S+ to D0, device inaccessible"
)
# rpc.c: said once a card's firmware has left several calls unanswered, also where the Xids have been rotated away.
_RESET_DUE = re.compile(rf"NVRM: [^\n]*GPU at PCI:({_ADDRESS})[^\n]*The GPU likely needs to be reset")
_HOLDER = re.compile(r"NVRM: GPU \S+ is already bound to (\w[\w-]*\w)")
_NOT_STARTED = re.compile(rf"NVRM:[^\n]*?({_ADDRESS})[^\n]*RmInitAdapter failed! \(([0-9a-fA-Fx:]+)\)")
# The driver's probe routine refuses a card in a paragraph of several lines, each behind "NVRM:"
# (NVIDIA/open-gpu-kernel-modules, src/nvidia/arch/nvalloc/unix/src/osinit.c).
_PARAGRAPH = re.compile(r"NVRM: The NVIDIA .*\bGPU\b")
_LINE = re.compile(r"NVRM:\s*(.*)$")
_LONGEST_PARAGRAPH = 8
# "pci 0000:01:00.0: BAR 1 [mem size 0x10000000 64bit pref]: can't assign; no space" (6.x), "BAR 1: no space for [mem
# ..." before. Not bridges' windows (13 to 15), I/O ports, the ROM (6), or the virtual functions' ("VF BAR").
_BAR = re.compile(rf"(?:pci|nvidia) ({_ADDRESS}): BAR ([0-3])\b([^\n]*)")
_BAR_REFUSED = re.compile(r"no space|failed to assign")
_BAR_PLACED = re.compile(r": assigned\b|: assigned \[")
_MISMATCH = re.compile(
    r"API mismatch: the client\b[^\n]*?(?:\n[^\n]*?)?has the version ([0-9.]+[0-9])"
    r"[\s\S]{0,120}?kernel module has the version ([0-9.]+[0-9])"
)
# "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer" (drivers/pci/pcie/aer.c).
_BUS_ERROR = re.compile(rf"nvidia ({_ADDRESS}): (?:AER: )?PCIe Bus Error: severity=(\w+)")
# AMD's and Intel's words for a transfer that no mapping allows, with the address behind or before.
_IOMMU = re.compile(
    rf"({_ADDRESS}): AMD-Vi: Event logged \[IO_PAGE_FAULT|IO_PAGE_FAULT device=([0-9a-fA-F:.]+)"
    r"|DMAR: [^\n]*Request device \[([0-9a-fA-F:.]+)\] fault addr"
)
_SWITCH = re.compile(r"nvidia-nvswitch[^\n]*SXid \(PCI:([0-9a-fA-F:.]+)\): ([0-9]{5}), (?:Fatal|Severity 1)")
_REFUSED_CARD = re.compile(rf"GPU ({_ADDRESS})")
_REFUSED_ID = re.compile(r"PCI ID: 10de:([0-9a-fA-F]{4})")
_REFUSALS: tuple[tuple[str, str], ...] = (
    ("fallen_off", r"fallen off the bus"),
    ("needs_open_module", r"requires use of the NVIDIA open"),
    ("needs_proprietary_module",
     r"does not include the required GPU|not supported by (?:the )?(?:NVIDIA )?open (?:nvidia\.ko|kernel module)"),
    ("unsupported_by_driver",
     r"is not supported by the .*driver release|supported through the NVIDIA .*Legacy drivers"),
)  # fmt: skip
_REFUSING_DRIVER = re.compile(r"by the (?:NVIDIA )?([0-9]{3}\.[0-9.]*[0-9])|The ([0-9]{3}\.[0-9.]*[0-9]) NVIDIA driver")
_LEGACY = re.compile(r"The NVIDIA (.+?) GPU installed in this system is supported through the NVIDIA ([0-9]{3})\.")
_CONDITIONS: tuple[tuple[str, str], ...] = (
    ("bar_space", r"NVRM:[^\n]*BAR[0-9] is 0M|NVRM: This PCI I/O region assigned to your NVIDIA device is invalid"),
    ("needs_open_module", r"requires? (?:the )?use of the NVIDIA open (?:source )?kernel modules?|"
                          r"not supported by (?:the )?proprietary|NVRM: installed in this system requires use of the"),
    ("driver_library_mismatch", r"NVRM: API mismatch"),
    ("module_key_rejected", r"Key was rejected by service|"
                            r"Loading of (?:unsigned )?module (?:with unavailable key )?is (?:rejected|restricted)|"
                            r"unsigned module loading is restricted|"
                            r"module verification failed[^\n]*nvidia[^\n]*rejected"),
    ("module_of_other_kernel", r"nvidia[^\n]*: version magic '[^\n]*should be|"
                               r"nvidia[^\n]*: (?:Unknown symbol|disagrees about version of symbol)"),
    ("adapter_failed", r"NVRM:[^\n]*RmInitAdapter failed|NVRM:[^\n]*rm_init_adapter failed"),
    ("unsupported_by_driver", r"NVRM: The NVIDIA GPU[^\n]*(?:is not supported|legacy)|"
                              r"supported through the NVIDIA [0-9.x]+ Legacy drivers|NVIDIA [0-9.]+ driver release"),
    # open-gpu-kernel-modules: the firmware that the module loads at a card's start is a file of its own version.
    # -2 is ENOENT; -4 tells that whoever wanted the file was killed.
    ("firmware_missing", r"Direct firmware load for nvidia/[^\n]*gsp[^\n]* failed with error -2\b|"
                         r"RmFetchGspRmImages: No firmware image"),
    ("held_by_other_driver", r"NVRM: The NVIDIA probe routine was not called for"),
    # nv-pci.c: a refused enlargement of BAR1 ends the probe; bridges of Thunderbolt have no room for it.
    ("bar_resize_failed", r"NVRM: Fatal Error while attempting to resize PCIe BARs"),
    ("uvm_failed", UVM_FAILED),
    ("insufficient_power", r"GPU does not have the necessary power cables connected"),
)  # fmt: skip


@dataclass(frozen=True)
class Refusal:
    """A card that the driver's probe would not take: why, and the driver version and last branch that it names."""

    reason: str
    address: str | None = None
    device_id: str | None = None
    name: str | None = None
    driver: str | None = None
    last_branch: int | None = None


@dataclass(frozen=True)
class KernelLog:
    """Xid codes by bus id (in order, each code once), cards that left the bus, conditions seen, refused cards, the code
    of each card that could not be started, the last (client, module) versions that differed, PCI functions with a
    memory window that the kernel found no room for, the worst severity of PCIe errors by bus id, functions whose
    transfers the IOMMU refused, fatal codes of NVSwitches, cards that did not wake from a sleep, cards of which the
    driver says that they need a reset, and other drivers that it found on cards."""

    xids: dict[str, tuple[int, ...]]
    fallen: tuple[str, ...]
    conditions: tuple[str, ...]
    refusals: tuple[Refusal, ...] = ()
    not_started: dict[str, str] = field(default_factory=dict)
    mismatch: tuple[str, str] | None = None
    unplaced: tuple[str, ...] = ()
    bus_errors: dict[str, str] = field(default_factory=dict)
    iommu_faults: tuple[str, ...] = ()
    switch_errors: tuple[str, ...] = ()
    not_woken: tuple[str, ...] = ()
    reset_due: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()

    @property
    def undriven(self) -> tuple[str, ...]:
        """Addresses of cards that fell off the bus, or that the driver refused or could not start."""
        return (
            *self.fallen,
            *self.not_woken,
            *self.not_started,
            *(item.address for item in self.refusals if item.address),
        )


def parse_kernel_log(text: str) -> KernelLog:
    """Read kernel log lines, any prefix (dmesg, journalctl) allowed. Never fails: an unknown line says nothing."""
    text = plain(text)
    xids = _xids(text)
    refusals = tuple(_refusals(text.split("\n")))
    fallen = [*_addresses(_FELL_OFF.findall(text))]
    fallen += [item.address for item in refusals if item.reason == "fallen_off" and item.address]
    fallen += [address for address, codes in xids.items() if 79 in codes]
    mismatches = _MISMATCH.findall(text)
    return KernelLog(
        xids={address: tuple(codes) for address, codes in xids.items()},
        fallen=tuple(dict.fromkeys(fallen)),
        conditions=tuple(name for name, pattern in _CONDITIONS if re.search(pattern, text, re.IGNORECASE)),
        refusals=refusals,
        not_started={
            address: match.group(2) for match in _NOT_STARTED.finditer(text) if (address := bus_id(match.group(1)))
        },
        mismatch=mismatches[-1] if mismatches else None,
        unplaced=_unplaced(text),
        bus_errors=_bus_errors(text),
        iommu_faults=_addresses(map("".join, _IOMMU.findall(text))),  # one of its groups holds the address
        switch_errors=tuple(dict.fromkeys(code for _, code in _SWITCH.findall(text))),
        not_woken=_addresses(_NOT_WOKEN.findall(text)),
        reset_due=_addresses(_RESET_DUE.findall(text)),
        holders=tuple(dict.fromkeys(_HOLDER.findall(text))),
    )  # fmt: skip


def _addresses(places: Iterable[str]) -> tuple[str, ...]:
    """Each address once, in order; what is none is left out."""
    return tuple(dict.fromkeys(address for where in places if (address := bus_id(where))))


def _bus_errors(text: str) -> dict[str, str]:
    worst: dict[str, str] = {}
    for where, severity in _BUS_ERROR.findall(text):
        address = bus_id(where)
        if address and worst.get(address) in (None, "Corrected"):
            worst[address] = severity
    return worst


def _unplaced(text: str) -> tuple[str, ...]:
    """Functions one of whose memory windows was refused and not placed by a later attempt."""
    refused: dict[tuple[str, str], None] = {}
    for match in _BAR.finditer(text):
        address, number, rest = bus_id(match.group(1)) or "", match.group(2), match.group(3)
        if _BAR_PLACED.search(rest):
            refused.pop((address, number), None)
        elif _BAR_REFUSED.search(rest) and "[io" not in rest:
            refused[address, number] = None
    return tuple(dict.fromkeys(address for address, _ in refused))


def _xids(text: str) -> dict[str, list[int]]:
    """Codes in order. 154 names the cure that the driver now wants: "None" takes an earlier one back."""
    xids: dict[str, list[int]] = {}
    for match in _XID.finditer(text):
        address, code = bus_id(match.group(1)), int(match.group(2))
        if address is None:
            continue
        found = xids.setdefault(address, [])
        wanted = _RECOVERY_TO.search(match.group(3)) if code == RECOVERY else None
        if wanted and wanted.group(1).strip().lower() == "none":
            xids[address] = [one for one in found if one != RECOVERY]
        elif code not in found:
            found.append(code)
    return {address: codes for address, codes in xids.items() if codes}


def _refusals(lines: list[str]) -> list[Refusal]:
    """The refusing paragraphs, each message once."""
    found: dict[Refusal, None] = {}
    for number, line in enumerate(lines):
        if not _PARAGRAPH.search(line):
            continue
        words: list[str] = []
        for follower in lines[number : number + _LONGEST_PARAGRAPH]:
            match = _LINE.search(follower)
            if match is None or (words and _PARAGRAPH.search(follower)):
                break
            words.append(match.group(1).strip())
        paragraph = " ".join(words)
        reason = next((name for name, pattern in _REFUSALS if re.search(pattern, paragraph, re.IGNORECASE)), None)
        if reason is None:
            continue
        found[_refusal(reason, paragraph)] = None
    return list(found)


def _refusal(reason: str, paragraph: str) -> Refusal:
    card, identity, driver, legacy = (
        pattern.search(paragraph) for pattern in (_REFUSED_CARD, _REFUSED_ID, _REFUSING_DRIVER, _LEGACY)
    )
    return Refusal(
        reason,
        address=bus_id(card.group(1)) if card else None,
        device_id=identity.group(1).lower() if identity else None,
        name=legacy.group(1) if legacy else None,
        driver=(driver.group(1) or driver.group(2)) if driver else None,
        last_branch=int(legacy.group(2)) if legacy else None,
    )

"""What the kernel log of this boot says about NVIDIA cards: Xid events, failed starts, missing address space."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwenlab.pci_address import bus_id

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): ([0-9]{1,3})")
_FELL_OFF = re.compile(
    r"NVRM:[^\n]*?(?:PCI:|GPU )?([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9])?)[^\n]*fallen off"
)
_CONDITIONS: tuple[tuple[str, str], ...] = (
    ("bar_space", r"BAR ?[0-9][^\n]*(?:can't assign; no space|failed to assign|no space for)|BAR1 is 0M|"
                  r"NVRM: This PCI I/O region assigned to your NVIDIA device is invalid"),
    ("needs_open_module", r"requires? (?:the )?use of the NVIDIA open (?:source )?kernel modules?|"
                          r"not supported by (?:the )?proprietary|NVRM: installed in this system requires use of the"),
    ("driver_library_mismatch", r"NVRM: API mismatch"),
    ("module_key_rejected", r"Key was rejected by service|Loading of (?:unsigned )?module is (?:rejected|restricted)|"
                            r"module verification failed[^\n]*nvidia[^\n]*rejected"),
    ("adapter_failed", r"NVRM:[^\n]*RmInitAdapter failed|NVRM:[^\n]*rm_init_adapter failed"),
    ("unsupported_by_driver", r"NVRM: The NVIDIA (?:GPU|probe routine)[^\n]*(?:is not supported|legacy)|"
                              r"supported through the NVIDIA [0-9.x]+ Legacy drivers"),
)  # fmt: skip


@dataclass(frozen=True)
class KernelLog:
    """Xid codes by bus id (in order, each code once), cards that left the bus, and conditions seen."""

    xids: dict[str, tuple[int, ...]]
    fallen: tuple[str, ...]
    conditions: tuple[str, ...]


def parse_kernel_log(text: str) -> KernelLog:
    """Read kernel log lines, any prefix (dmesg, journalctl) allowed. Never fails: an unknown line says nothing."""
    xids: dict[str, list[int]] = {}
    for match in _XID.finditer(text):
        address = bus_id(match.group(1))
        if address and int(match.group(2)) not in xids.setdefault(address, []):
            xids[address].append(int(match.group(2)))
    fallen = [address for match in _FELL_OFF.finditer(text) if (address := bus_id(match.group(1)))]
    fallen += [address for address, codes in xids.items() if 79 in codes]
    return KernelLog(
        xids={address: tuple(codes) for address, codes in xids.items()},
        fallen=tuple(dict.fromkeys(fallen)),
        conditions=tuple(name for name, pattern in _CONDITIONS if re.search(pattern, text, re.IGNORECASE)),
    )

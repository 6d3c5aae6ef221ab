"""What one source says about a host's cards: plain values, before sources are merged.

Parsers in this package take text or a decoded dump and return these. They never raise anything but `ParseError`.
This module and the parsers use the standard library only, so that a recording can be made and compared on a machine
that has nothing but Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PROHIBITED, EXCLUSIVE = "Prohibited", "Exclusive_Process"  # compute modes
FABRIC_FAILED = "Failed"  # the registration with the NVSwitches came to an end without success
# Rows or pages of the card's memory: to be exchanged at the next reset, or none left to exchange them with.
REPAIR_PENDING, REPAIR_FAILED = "pending", "failed"
# Kernel drivers that keep a card for a virtual machine: VFIO's, Xen's, and the stub that only holds it.
FOREIGN_DRIVERS = ("vfio-pci", "pciback", "xen-pciback", "pci-stub")
# Boards that reach each other through NVSwitches only, by the names that NVML gives them.
NVSWITCH_BOARD = re.compile(
    r"A100-SXM4|A800-SXM4|V100-SXM3|H100 80GB HBM3|H100 SXM|H800(?! PCIe)|H200(?! NVL)|H20\b|H20-3e|\bB[123]00\b"
)


class ParseError(ValueError):
    """The text of a source contradicts itself or is not what its name says; the message names the spot."""


@dataclass(frozen=True)
class MigReading:
    """One MIG instance; memory in MiB."""

    profile: str
    uuid: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True)
class CardReading:
    """One card as one source sees it; None where the source does not know. Sizes in MiB, power in watts."""

    index: int | None = None
    uuid: str | None = None
    bus_id: str | None = None
    name: str | None = None
    device_id: str | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    memory_reserved_mib: int | None = None
    memory_unified: bool | None = None
    bar1_total_mib: int | None = None
    bar1_used_mib: int | None = None
    display_active: bool | None = None
    display_attached: bool | None = None
    ecc_enabled: bool | None = None
    mig_enabled: bool | None = None
    compute_mode: str | None = None
    mig_instances: tuple[MigReading, ...] = ()
    generation_now: int | None = None
    generation_max: int | None = None
    generation_slot: int | None = None
    width_now: int | None = None
    width_max: int | None = None
    width_slot: int | None = None
    limit_w: float | None = None
    default_w: float | None = None
    min_w: float | None = None
    max_w: float | None = None
    persistence: bool | None = None
    numa_node: int | None = None
    replays: int | None = None
    processes: int | None = None
    fabric: str | None = None
    kernel_driver: str | None = None
    sensor_fault: str | None = None
    memory_repair: str | None = None  # REPAIR_PENDING or REPAIR_FAILED
    licence: str | None = None
    fault: str | None = None


@dataclass(frozen=True)
class PairReading:
    """The relation of two cards of one source, by that source's card indices (a < b)."""

    a: int
    b: int
    lanes: int | None = None
    link_generation: int | None = None
    nvswitch: bool | None = None
    ancestor: str | None = None
    peer_read: str | None = None
    peer_write: str | None = None


@dataclass(frozen=True)
class Lost:
    """A card that the driver names and cannot open, by index and PCI address as far as told, and its words."""

    index: int | None = None
    bus_id: str | None = None
    why: str | None = None


@dataclass(frozen=True)
class Failure:
    """Why a source could not answer at all: a stable code and the source's own words."""

    code: str
    text: str


@dataclass(frozen=True)
class Reading:
    """Everything one source says. `damage` lists spots where the text was cut, wrapped or unreadable."""

    cards: tuple[CardReading, ...] = ()
    pairs: tuple[PairReading, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    library: str | None = None
    failure: Failure | None = None
    damage: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lost: tuple[Lost, ...] = ()

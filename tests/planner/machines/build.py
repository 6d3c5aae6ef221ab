"""One line of text to a `HostInventory`: "2x3090 nvlink", "3090+A4000 PHB", "4x5060 Ti PHB peer"."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from qwenlab.gpu_data import GpuSpec
from qwenlab.host_inventory import Ancestor, Driver, Gpu, GpuPair, HostInventory, OperatingSystem, PcieLink, PowerLimit
from tests.data_sheets import data_sheet

# MiB that nvidia-smi shows, where it is not the nominal size less what firmware keeps.
_SHOWN_MIB = {
    24: 24_576,
    12: 12_288,
    16: 16_376,
    8: 8_192,
    32: 32_607,
    48: 46_068,
    80: 81_559,
    96: 97_887,
    141: 143_771,
    40: 40_960,
    20: 20_470,
    10: 10_240,
    180: 183_359,
}
RESERVED_MIB = 400  # what the driver keeps of every card


@dataclass(frozen=True)
class Machine:
    """A machine in the matrix.

    Attributes:
        name: key in tests and docs.
        cards: product names in PCI bus order, with the memory in GiB where the name leaves it open.
        link: "nvlink", "nvswitch", "peer" (PCIe peer access) or "none".
        ancestor: what every two cards share; bridges: NVLink pairs when not all of them are joined.
        used_mib: taken on each card by others.
    """

    name: str
    cards: tuple[tuple[str, float | None], ...]
    link: str = "none"
    ancestor: Ancestor = Ancestor.PHB
    bridges: tuple[tuple[int, int], ...] | None = None
    used_mib: tuple[int, ...] = ()
    wsl2: bool = False
    lanes: int = 16
    ram_gib: float = 64.0


def machine(entry: Machine) -> HostInventory:
    """The inventory of a machine."""
    gpus = tuple(_gpu(entry, index) for index in range(len(entry.cards)))
    pairs = tuple(_pair(entry, a, b) for a, b in combinations(range(len(gpus)), 2))
    return HostInventory(
        hostname=entry.name,
        os=OperatingSystem(id="debian", version_id="13", codename="trixie", kernel="6.12.0", architecture="x86_64"),
        cpu_model="AMD EPYC 7313",
        cpu_vendor="AuthenticAMD",
        cpu_count=32,
        numa_nodes=1,
        ram_total_gib=entry.ram_gib,
        ram_available_gib=entry.ram_gib * 0.9,
        shm_total_gib=entry.ram_gib / 2,
        virtualisation="wsl" if entry.wsl2 else "none",
        wsl2=entry.wsl2,
        driver=Driver(loaded="580.95.05", installed="580.95.05", library="580.95.05", cuda="13.0", open_module=True),
        gpus=gpus,
        pairs=pairs,
    )


def _gpu(entry: Machine, index: int) -> Gpu:
    name, memory = entry.cards[index]
    spec = data_sheet(name=name)
    used = entry.used_mib[index] if entry.used_mib else 0
    return Gpu(
        index=index,
        uuid=f"GPU-{index:08x}-0000-0000-0000-{abs(hash_of(entry.name)):012x}",
        pci_bus_id=f"0000:{index + 1:02x}:00.0",
        name=spec.name,
        pci_device_id=spec.pci_ids[0] if spec.pci_ids else None,
        architecture=spec.architecture,
        compute_capability=spec.compute_capability,
        memory_total_mib=_shown_mib(spec, memory),
        memory_used_mib=used,
        memory_reserved_mib=RESERVED_MIB,
        display_active=used > 200,
        display_attached=used > 200,
        pcie=PcieLink(
            generation_now=1,
            generation_max=spec.pcie_generation,
            generation_slot=spec.pcie_generation,
            width_now=min(entry.lanes, spec.pcie_lanes),
            width_max=spec.pcie_lanes,
            width_slot=entry.lanes,
        ),
        power=PowerLimit(limit_w=spec.tdp_w, default_w=spec.tdp_w, min_w=spec.tdp_w * 0.5, max_w=spec.tdp_w * 1.1),
        numa_node=0,
    )


def _shown_mib(spec: GpuSpec, memory: float | None) -> int:
    gib = memory if memory is not None else spec.memory_gib[0]
    return _SHOWN_MIB.get(int(gib), int(gib * 1024))


def _pair(entry: Machine, a: int, b: int) -> GpuPair:
    bridged = entry.link in ("nvlink", "nvswitch") and (entry.bridges is None or (a, b) in entry.bridges)
    peers = bridged or entry.link == "peer"
    lanes = data_sheet(name=entry.cards[a][0]).nvlink
    return GpuPair(
        a=a,
        b=b,
        nvlink_lanes=(lanes.lanes if lanes else 4) if bridged else 0,
        nvswitch=entry.link == "nvswitch",
        ancestor=entry.ancestor,
        peer_read=peers,
        peer_write=peers,
        peer_refusal=None if peers else "CNS",
    )


def hash_of(text: str) -> int:
    """A number for a name that is the same in every run."""
    return int.from_bytes(text.encode()[-6:].rjust(6, b"q"), "big") % 10**12

"""What NVIDIA cards are: the device table in `data/gpus.yaml`, read once and looked up by name or PCI device id."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import Field

from qwenlab.record import Record

# vGPU types are the card's short name and a profile of so many GB: "NVIDIA A10-24Q"; of a MIG slice "GRID A100D-1-20C".
_VIRTUAL = re.compile(r"^(?:NVIDIA|GRID)\s+(\S.*?)-(?:[0-9]-)?[0-9]{1,3}[ABCQ](?:ME)?$")
# Short names that are not the product's (NVIDIA vGPU software user guide, tables of boards and vGPU types).
_VIRTUAL_OF = {
    "V100": "Tesla V100-PCIE-16GB",
    "V100D": "Tesla V100-PCIE-32GB",
    "V100X": "Tesla V100-SXM2-16GB",
    "V100DX": "Tesla V100-SXM2-32GB",
    "V100L": "Tesla V100-FHHL-16GB",
    "V100S": "Tesla V100S-PCIE-32GB",
    "P4": "Tesla P4",
    "P6": "Tesla P6",
    "P40": "Tesla P40",
    "M10": "Tesla M10",
    "M60": "Tesla M60",
    "RTX6000P": "Quadro RTX 6000",
    "RTX8000P": "Quadro RTX 8000",
    "A100": "NVIDIA A100-PCIE-40GB",
    "A100X": "NVIDIA A100-SXM4-40GB",
    "A100D": "NVIDIA A100 80GB PCIe",
    "A100DX": "NVIDIA A100-SXM4-80GB",
    "H100": "NVIDIA H100 PCIe",
    "H100XM": "NVIDIA H100 80GB HBM3",
    "H100L": "NVIDIA H100 NVL",
    "H100XL": "NVIDIA H100 SXM5 94GB",
    "H100XS": "NVIDIA H100 SXM5 64GB",
    "H200": "NVIDIA H200 NVL",
    "H200X": "NVIDIA H200",
    "B200X": "NVIDIA B200",
    "RTX5000-Ada": "NVIDIA RTX 5000 Ada Generation",
    "RTX6000-Ada": "NVIDIA RTX 6000 Ada Generation",
    "RTX Pro 6000 Blackwell DC": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}
_NAMELESS = "graphicsdevice"  # a CMP 170HX, and any card that is newer than its driver
_LANE_GB_S = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}


class Segment(StrEnum):
    """Whom the card was made for; consumer and laptop cards get no PCIe peer access from the official driver."""

    CONSUMER = "consumer"
    LAPTOP = "laptop"
    WORKSTATION = "workstation"
    DATACENTRE = "datacentre"
    EMBEDDED = "embedded"
    MINING = "mining"


class ModuleFlavour(StrEnum):
    """Which kernel module flavours exist for a card."""

    OPEN = "open"
    PROPRIETARY = "proprietary"
    EITHER = "either"


class NvLink(Record):
    """The card's NVLink ports."""

    generation: int
    lanes: int = Field(description="links, as nvidia-smi counts them in NV#")
    lane_gb_s: float = Field(description="GB/s of one link in one direction")


class GpuFamily(Record):
    """Cards of one compute capability, by PCI device-id ranges (inclusive)."""

    key: str
    architecture: str
    compute_capability: tuple[int, int] | None = None
    id_ranges: tuple[tuple[int, int], ...]
    names: tuple[str, ...] = Field(description="patterns that the lower-case name behind the vendor's starts with")
    module: ModuleFlavour
    last_driver_branch: int | None = Field(default=None, description="None while current branches support it")
    pcie_generation: int
    source: str


class GpuSpec(Record):
    """One card as its data sheet describes it. Throughputs are dense (no sparsity), in TFLOPS or TOPS.

    `fp16_tflops` and `fp8_tflops` are with FP32 accumulation, `fp16_acc16_tflops` with FP16 accumulation.
    """

    name: str = Field(description="NVML's product name")
    aliases: tuple[str, ...] = ()
    family: str
    segment: Segment
    architecture: str
    compute_capability: tuple[int, int] | None
    memory_gib: tuple[float, ...] = Field(description="capacities sold under this name and id, the usual one first")
    unified_memory: bool = False
    bandwidth_gb_s: float
    fp16_tflops: float | None = None
    fp16_acc16_tflops: float | None = None
    int8_tops: float | None = None
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    nvlink: NvLink | None = None
    pcie_generation: int
    pcie_lanes: int
    tdp_w: float
    p2p_by_driver: bool = Field(description="the official driver grants peer access over PCIe")
    module: ModuleFlavour
    last_driver_branch: int | None = None
    pci_ids: tuple[str, ...]
    source: str


class _Table(Record):
    families: tuple[GpuFamily, ...]
    cards: tuple[GpuSpec, ...]


def find(
    *, name: str | None = None, device_id: str | int | None = None, memory_mib: int | None = None
) -> GpuSpec | None:
    """The data sheet of a card, by its product name (trusted first: ids are shared by variants) or PCI device id.

    None for a card that is not in the table; the memory tells apart cards whose names were cut.
    """
    by_name = _by_name().get(_normal(_physical(name))) if name and not _is_cut(name) else None
    by_id = _by_id().get(_hex(device_id)) if device_id is not None else None
    if by_name is not None and name and _normal(name) == _NAMELESS:
        return by_id if device_id is not None else by_name if _has_size(by_name, memory_mib) else None
    if by_name is None and by_id is None and name:
        alike = of_cut_name(name, memory_mib)
        return alike[0] if len(alike) == 1 else None
    return by_name or by_id


def is_virtual(name: str | None) -> bool:
    """Whether this is a share of a card that a hypervisor hands out (vGPU)."""
    return _VIRTUAL.match((name or "").strip()) is not None


def _physical(name: str) -> str:
    """The card behind a virtual one; any other name as it is."""
    match = _VIRTUAL.match(name.strip())
    return _VIRTUAL_OF.get(match.group(1), match.group(1)) if match else name


def of_cut_name(name: str, memory_mib: int | None = None) -> tuple[GpuSpec, ...]:
    """The cards that a name can stand for which nvidia-smi's table cut ("NVIDIA RTX PRO 6000 Blac..."), with this much
    memory where it is given; none for a whole name, and none where nothing but the brand is left."""
    if not _is_cut(name):
        return ()
    start = _normal(name.rstrip().rstrip(".…"))
    cards = {
        card.name: card for whole, card in _by_name().items() if start and whole.startswith(start) and whole != start
    }
    fitting = tuple(card for card in cards.values() if _has_size(card, memory_mib))
    # other memory than any of them was sold with: a card whose memory was exchanged (an RTX 4080 SUPER with 32 GB)
    return fitting or tuple(cards.values())


def family_of(device_id: str | int | None = None, *, name: str | None = None) -> GpuFamily | None:
    """The family whose id ranges hold a PCI device id, else the one that such a name belongs to; also for cards that
    are not listed one by one."""
    families = table().families
    if device_id is not None:
        number = int(_hex(device_id), 16)
        found = next((one for one in families for low, high in one.id_ranges if low <= number <= high), None)
        if found is not None:
            return found
    if not name or _is_cut(name):
        return None
    plain = " ".join(_physical(name).casefold().split()).removeprefix("nvidia ")
    return next((one for one in families if any(re.match(pattern, plain) for pattern in one.names)), None)


@cache
def table() -> _Table:
    """The whole device table."""
    raw = yaml.safe_load(files("qwenlab").joinpath("data/gpus.yaml").read_text(encoding="utf-8"))
    sources: dict[str, str] = raw["sources"]
    families = {key: _family(key, row, sources) for key, row in raw["families"].items()}
    return _Table(families=tuple(families.values()), cards=tuple(_card(row, families, sources) for row in raw["cards"]))


def _family(key: str, row: dict[str, Any], sources: dict[str, str]) -> GpuFamily:
    ranges = [str(text).split("-") for text in row["ids"]]
    return GpuFamily(
        key=key,
        architecture=row["architecture"],
        compute_capability=row.get("compute_capability"),
        id_ranges=tuple((int(low, 16), int(high, 16)) for low, high in ranges),
        names=row.get("names", ()),
        module=row["module"],
        last_driver_branch=row.get("last_driver_branch"),
        pcie_generation=row["pcie"],
        source=sources[row["source"]],
    )


def _card(row: dict[str, Any], families: dict[str, GpuFamily], sources: dict[str, str]) -> GpuSpec:
    family = families[row["family"]]
    segment = Segment(row["segment"])
    nvlink = None
    if "nvlink" in row:
        generation, lanes, *rate = row["nvlink"]
        nvlink = NvLink(generation=generation, lanes=lanes, lane_gb_s=rate[0] if rate else _LANE_GB_S[generation])
    return GpuSpec(
        name=row["name"],
        aliases=row.get("aliases", ()),
        family=family.key,
        segment=segment,
        architecture=family.architecture,
        compute_capability=family.compute_capability,
        memory_gib=row["memory"],
        unified_memory=row.get("unified_memory", False),
        bandwidth_gb_s=row["bandwidth"],
        fp16_tflops=row.get("fp16"),
        fp16_acc16_tflops=row.get("fp16_acc16"),
        int8_tops=row.get("int8"),
        fp8_tflops=row.get("fp8"),
        fp4_tflops=row.get("fp4"),
        nvlink=nvlink,
        pcie_generation=row.get("pcie", family.pcie_generation),
        pcie_lanes=row.get("lanes", 16),
        tdp_w=row["tdp"],
        p2p_by_driver=row.get("p2p", segment not in (Segment.CONSUMER, Segment.LAPTOP)),
        module=family.module,
        last_driver_branch=family.last_driver_branch,
        pci_ids=tuple(_hex(value) for value in row["ids"]),
        source=sources[row["source"]],
    )


@cache
def _by_name() -> dict[str, GpuSpec]:
    return {_normal(name): card for card in table().cards for name in (card.name, *card.aliases)}


@cache
def _by_id() -> dict[str, GpuSpec]:
    return {device_id: card for card in table().cards for device_id in card.pci_ids}


def _is_cut(name: str) -> bool:
    return name.rstrip().endswith(("...", "…"))


def in_common(cards: tuple[GpuSpec, ...]) -> dict[str, Any]:
    """Architecture and compute capability, as far as all of the cards share them."""
    shared = {name: {getattr(card, name) for card in cards} for name in ("architecture", "compute_capability")}
    return {name: values.pop() for name, values in shared.items() if len(values) == 1}


def _has_size(card: GpuSpec, memory_mib: int | None) -> bool:
    """Whether the card was sold with as much memory; true where nobody says how much it has."""
    return memory_mib is None or any(_is_size(memory_mib / 1024, size) for size in card.memory_gib)


def _is_size(told: float, sold: float) -> bool:
    """Whether a card sold with so many GiB reports this: up to 7 % go to ECC and the firmware."""
    return 0.93 * sold <= told <= 1.02 * sold


def _normal(name: str) -> str:
    """A name without vendor, brand, case and spacing: "GeForce RTX 3090", "RTX3090" and NVML's name are one card."""
    words = re.sub(r"\((r|tm)\)|\b(nvidia|geforce|tesla|quadro)\b", " ", name.casefold())
    return re.sub(r"[^a-z0-9]", "", words)


def _hex(device_id: str | int) -> str:
    """Four lower-case hex digits from 0x2204, "2204", "10DE:2204" or NVML's "0x220410DE"."""
    if isinstance(device_id, int):
        number = device_id >> 16 if device_id > 0xFFFF else device_id
        return f"{number:04x}"
    text = device_id.casefold().strip()
    if ":" in text:
        text = text.rsplit(":", 1)[1]
    text = text.removeprefix("0x")
    return text[:4] if len(text) == 8 and text.endswith("10de") else text.rjust(4, "0")

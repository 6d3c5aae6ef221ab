"""NVIDIA functions on the PCI bus: sysfs as `gather.sh` prints it, or lspci. Known before any driver is there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import combinations

from qwenlab.facts.readings import CardReading, PairReading, ParseError, Reading
from qwenlab.pci_address import bus_id

_GENERATIONS = {
    "2.5": 1,
    "5.0": 2,
    "5": 2,
    "8.0": 3,
    "8": 3,
    "16.0": 4,
    "16": 4,
    "32.0": 5,
    "32": 5,
    "64.0": 6,
    "64": 6,
}
# Plain, with ids (-nn), and ids alone (-n).
_LSPCI = re.compile(
    r"^(?P<address>(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])\s+(?:(?:VGA compatible controller|3D controller"
    r"|Display controller)[^:]*:\s+NVIDIA[^\n]*|03(?:00|02|80): 10de:[^\n]*)",
    re.IGNORECASE | re.MULTILINE,
)
_DETAILS = re.compile(r"(?:\n[ \t]+[^\n]*)*")
_ID = re.compile(r"\b10de:([0-9a-f]{4})\b|NVIDIA Corporation Device ([0-9a-f]{4})\b", re.IGNORECASE)
_NAME = re.compile(r"NVIDIA Corporation [^\[\n]*\[([^\]\n]{3,})\]")
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380")
_SWITCH_CLASS = "0x0680"


@dataclass
class Function:
    """One PCI function with its sysfs attributes and the bridges above it, root first."""

    address: str
    attributes: dict[str, str] = field(default_factory=dict)
    root: str | None = None
    bridges: tuple[str, ...] = ()


@dataclass(frozen=True)
class PciBus:
    """GPUs in bus order and what else sysfs tells about the NVIDIA part of the bus.

    `iommu_domains` are the kernel's words for the cards' IOMMU groups, where they have any: "DMA", "DMA-FQ", "identity"
    (Linux Documentation/ABI/testing/sysfs-kernel-iommu_groups).
    """

    reading: Reading
    drivers: dict[str, str]
    nvswitches: int = 0
    iommu_domains: frozenset[str] = frozenset()


def parse_sysfs(text: str) -> PciBus:
    """Read the capture: `@device ADDRESS` or `@bridge ADDRESS`, each followed by `attribute value` lines.

    Raises `ParseError` for a line that belongs to no device.
    """
    gpus: list[Function] = []
    bridges: dict[str, Function] = {}
    current: Function | None = None
    for line in text.splitlines():
        key, _, value = line.strip().partition(" ")
        if not key:
            continue
        if key in ("@device", "@bridge"):
            address = bus_id(value)
            if address is None:
                raise ParseError(f"sysfs: {value!r} is no PCI address")
            current = Function(address)
            if key == "@device":
                gpus.append(current)
            else:
                bridges[address] = current
        elif current is None:
            raise ParseError(f"sysfs: {line.strip()[:60]!r} before any device")
        elif key == "path":
            current.root, current.bridges = _chain(value)
        else:
            current.attributes[key] = value.strip()
    switches = sum(item.attributes.get("class", "").startswith(_SWITCH_CLASS) for item in gpus)
    gpus = sorted(
        (item for item in gpus if item.attributes.get("class", "").startswith(_DISPLAY_CLASSES)),
        key=lambda item: item.address,
    )
    return PciBus(
        reading=Reading(
            cards=tuple(_card(index, item, bridges) for index, item in enumerate(gpus)),
            pairs=tuple(
                PairReading(a, b, ancestor=_ancestor(gpus[a], gpus[b])) for a, b in combinations(range(len(gpus)), 2)
            ),
        ),
        drivers={item.address: item.attributes["driver"] for item in gpus if item.attributes.get("driver")},
        nvswitches=switches,
        iommu_domains=frozenset(found for item in gpus if (found := item.attributes.get("iommu_group/type"))),
    )


def parse_lspci(text: str) -> Reading:
    """Read `lspci` lines (`-nn`, `-k`, `-v` or plain); a card with `(rev ff)`, or whose header cannot be read, answers
    nothing any more."""
    cards = []
    for index, match in enumerate(_LSPCI.finditer(text)):
        device = _ID.search(match[0])
        name = None if device else _NAME.search(match[0])  # an id tells more than the name that lspci has for it
        details = _DETAILS.match(text, match.end())
        below = details[0] if details else ""
        driver = re.search(r"Kernel driver in use: (\S+)", below)
        cards.append(
            CardReading(
                index=index,
                bus_id=bus_id(match["address"]),
                device_id=(device.group(1) or device.group(2)).lower() if device else None,
                name=name.group(1) if name else None,
                kernel_driver=driver.group(1) if driver else None,
                fault="fallen off the bus" if "(rev ff)" in match[0] or "Unknown header type" in below else None,
            )
        )
    return Reading(cards=tuple(cards))


def _chain(path: str) -> tuple[str | None, tuple[str, ...]]:
    parts = path.split("/")
    root = next((part for part in parts if re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", part)), None)
    addresses = [address for part in parts if (address := bus_id(part))]
    return root, tuple(addresses[:-1])


def _card(index: int, item: Function, bridges: dict[str, Function]) -> CardReading:
    device = item.attributes.get("device", "").lower().removeprefix("0x")
    above = [bridges[address].attributes for address in item.bridges if address in bridges]
    generations = [value for attributes in above if (value := _generation(attributes.get("max_link_speed")))]
    widths = [value for attributes in above if (value := _count(attributes.get("max_link_width")))]
    node = item.attributes.get("numa_node", "")
    return CardReading(
        index=index,
        bus_id=item.address,
        device_id=device if re.fullmatch(r"[0-9a-f]{4}", device) else None,
        generation_now=_generation(item.attributes.get("current_link_speed")),
        generation_max=_generation(item.attributes.get("max_link_speed")),
        generation_slot=min(generations, default=None),
        width_now=_count(item.attributes.get("current_link_width")),
        width_max=_count(item.attributes.get("max_link_width")),
        width_slot=min(widths, default=None),
        numa_node=int(node) if re.fullmatch(r"[0-9]{1,4}", node) else None,
        kernel_driver=item.attributes.get("driver"),
    )


def _ancestor(a: Function, b: Function) -> str | None:
    """nvidia-smi's label for two functions, from their paths in the device tree; None when sysfs cannot tell."""
    if a.root is None or b.root is None:
        return None
    if a.root != b.root:
        nodes = [item.attributes.get("numa_node", "-1") for item in (a, b)]
        if "-1" in nodes:
            return None
        return "NODE" if nodes[0] == nodes[1] else "SYS"
    shared = 0
    while shared < min(len(a.bridges), len(b.bridges)) and a.bridges[shared] == b.bridges[shared]:
        shared += 1
    if shared == 0:
        return "PHB"
    return "PIX" if max(len(a.bridges), len(b.bridges)) - shared <= 1 else "PXB"


def _generation(text: str | None) -> int | None:
    """PCIe generation of "8.0 GT/s PCIe"."""
    return _GENERATIONS.get((text or "").split(" ")[0])


def _count(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,2}", text) and 0 < int(text) <= 32 else None

"""An inventory for a person: the host in a line, a table of cards, the relations as a matrix, and what is wrong."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from qwenlab.host_inventory import Gpu, GpuPair, HostInventory, Severity

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_WIDE = 130  # columns at which a UUID fits


def show(inventory: HostInventory, console: Console | None = None) -> None:
    """Print the inventory to the terminal (or to `console`)."""
    out = console or Console(highlight=False)
    out.print(_headline(inventory))
    if inventory.gpus:
        out.print(_cards(inventory.gpus, uuids=out.width >= _WIDE))
    if len(inventory.gpus) > 1 and inventory.pairs:
        out.print(_matrix(inventory))
        out.print(
            "NV# linked by # NVLinks · PIX, PXB switch · PHB host bridge · NODE, SYS across NUMA nodes", style="dim"
        )
        out.print("+ peer access granted by the driver · - refused · nothing: nobody said", style="dim")
    for item in inventory.diagnoses:
        out.print(f"[{_COLOURS[item.severity]}]{item.severity:7}[/] {item.code}: ", end="")
        out.print(item.text, markup=False)


def _headline(inventory: HostInventory) -> str:
    driver = inventory.driver
    parts = [
        inventory.hostname,
        inventory.os.pretty_name,
        f"kernel {inventory.os.kernel}" if inventory.os.kernel else None,
        f"{inventory.ram_total_gib:g} GiB RAM" if inventory.ram_total_gib else None,
        f"driver {driver.loaded}" if driver.loaded else "no driver loaded",
        f"CUDA up to {driver.cuda}" if driver.cuda else None,
        f"{len(inventory.usable_gpus)} of {len(inventory.gpus)} cards usable",
        None if inventory.parse == "ok" else f"reading {inventory.parse}",
    ]
    return " · ".join(part for part in parts if part)


def _cards(gpus: tuple[Gpu, ...], *, uuids: bool) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("", "card", "PCI", "MiB", "used", "sm", "PCIe", "watt", "NUMA", *(("UUID",) if uuids else ())):
        table.add_column(title, justify="right" if title in ("MiB", "used") else "left", no_wrap=title != "card")
    for gpu in gpus:
        cells = (
            f"{gpu.index}",
            (gpu.name or gpu.architecture or "unknown") + ("" if gpu.usable else " (left out)"),
            gpu.pci_bus_id or "?",
            _text(gpu.memory_total_mib),
            _text(gpu.memory_used_mib),
            "{}.{}".format(*gpu.compute_capability) if gpu.compute_capability else "?",
            f"{_text(gpu.pcie.generation_max)}x{_text(gpu.pcie.width_now or gpu.pcie.width_max)}",
            f"{gpu.power.limit_w:g}" if gpu.power.limit_w is not None else "?",
            gpu.numa_affinity or _text(gpu.numa_node),
            *((gpu.uuid or "?",) if uuids else ()),
        )
        table.add_row(*cells, style=None if gpu.usable else "dim")
    return table


def _matrix(inventory: HostInventory) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for gpu in inventory.gpus:
        table.add_column(str(gpu.index), justify="center")
    for row in inventory.gpus:
        cells = (_cell(inventory.pair(row.index, column.index), row, column) for column in inventory.gpus)
        table.add_row(str(row.index), *cells)
    return table


def _cell(pair: GpuPair | None, row: Gpu, column: Gpu) -> str:
    if row.index == column.index:
        return "X"
    if pair is None:
        return "?"
    label = f"NV{pair.nvlink_lanes}" if pair.nvlink_lanes else (pair.ancestor.value if pair.ancestor else "?")
    return label + {True: "+", False: "-", None: ""}[pair.peer_read]


def _text(value: object) -> str:
    return "?" if value is None else str(value)

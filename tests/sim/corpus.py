"""A recorded inventory (a corpus YAML: `gpus`, `topo_matrix`, `p2p_matrix`) as a simulated machine.

Only what a record states is taken over; where it says nothing, the card model's and the simulator's defaults stand.
A record that lists no cards with a known name has nothing to simulate: `from_record` returns None for it.
"""

from __future__ import annotations

import re
from typing import Any, cast, get_args

from tests.sim.inventory import Ancestor, PeerStatus, SimGpu, SimHost, SimPair, cards

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def from_record(record: dict[str, Any]) -> SimHost | None:
    """The machine that a corpus record describes, its cards renumbered in PCI bus order if the record had bus ids."""
    listed = sorted(record.get("gpus") or [], key=lambda gpu: int(gpu["index"]))
    if not listed or any(gpu.get("name") not in cards() for gpu in listed):
        return None
    buses = _bus_ids(listed)
    order = sorted(range(len(listed)), key=lambda i: buses[i])
    topology = _matrix(record.get("topo_matrix"), len(listed))
    peers = _matrix(record.get("p2p_matrix"), len(listed))
    numa, cpus = _affinity(record.get("topo_matrix"), len(listed))
    version = re.match(r"\d+(?:\.\d+)+", str(record.get("driver") or ""))
    cuda = re.match(r"\d+\.\d", str(record.get("cuda") or ""))
    pairs = [
        _pair(low, high, topology.get((order[low], order[high])), peers.get((order[low], order[high])))
        for low in range(len(order))
        for high in range(low + 1, len(order))
    ]
    return SimHost(
        name=str(record["id"]),
        driver=version[0] if version else "580.126.09",
        cuda=cuda[0] if cuda else "13.0",
        module=_module([str(gpu["name"]) for gpu in listed]),
        wsl2="WSL2" in str(record.get("os")),
        numa_cpus=cpus or {0: "0-31"},
        gpus=tuple(_gpu(listed[i], buses[i], numa.get(i, 0)) for i in order),
        pairs=tuple(pairs),
    )


def _module(names: list[str]) -> Any:
    return "proprietary" if any(cards()[name].module == "proprietary" for name in names) else "open"


def _bus_ids(listed: list[dict[str, Any]]) -> list[str]:
    """As recorded; a card without one gets the next free bus after the card before it."""
    given = {_short(str(gpu["bus_id"])) for gpu in listed if gpu.get("bus_id")}
    buses: list[str] = []
    bus = 0
    for gpu in listed:
        if gpu.get("bus_id"):
            buses.append(_short(str(gpu["bus_id"])))
            bus = int(buses[-1].split(":")[1], 16)
            continue
        while (candidate := f"0000:{(bus := bus + 1):02x}:00.0") in given:
            pass
        buses.append(candidate)
    return buses


def _short(bus_id: str) -> str:
    domain, rest = bus_id.lower().split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def _gpu(gpu: dict[str, Any], bus: str, numa: int | None) -> SimGpu:
    total, free = gpu.get("vram_mib"), gpu.get("vram_free_mib")
    fields = {"memory.total": str(total)} if total else {}
    if gpu.get("pcie_gen_max"):
        fields["pcie.link.gen.max"] = str(gpu["pcie_gen_max"])
    if gpu.get("pcie_width_max"):
        fields["pcie.link.width.max"] = str(gpu["pcie_width_max"])
    return SimGpu(
        card=gpu["name"],
        bus=bus,
        uuid=gpu["uuid"],
        numa=numa,
        used_mib=float(total) - float(free) if total and free else 0,
        display=bool(gpu.get("display_active")),
        persistence=bool(gpu.get("persistence")),
        ecc={"On": True, "Enabled": True, "Off": False, "Disabled": False}.get(str(gpu.get("ecc"))),
        power_limit_w=gpu.get("power_limit_w"),
        gen_now=gpu.get("pcie_gen_current"),
        width_now=gpu.get("pcie_width_current"),
        mig_enabled=gpu.get("mig") == "Enabled",
        fields=fields,
    )


def _pair(low: int, high: int, label: str | None, peer: str | None) -> SimPair:
    lanes = int(label[2:]) if label and re.fullmatch(r"NV\d+", label) else 0
    ancestor = cast(Ancestor, label) if label in get_args(Ancestor) else None
    status = cast(PeerStatus, peer) if peer in get_args(PeerStatus) else None
    return SimPair(a=low, b=high, ancestor=ancestor, nvlink=lanes, peer=status)


def _rows(text: str | None, count: int) -> dict[int, list[str]]:
    rows: dict[int, list[str]] = {}
    for line in ESCAPES.sub("", text or "").splitlines():
        words = line.split()
        if len(words) > count and (match := re.fullmatch(r"GPU(\d+)", words[0])) and not words[1].startswith("GPU"):
            rows.setdefault(int(match[1]), words[1:])
    return rows


def _matrix(text: str | None, count: int) -> dict[tuple[int, int], str]:
    rows = _rows(text, count)
    return {(a, b): words[b] for a, words in rows.items() for b in range(min(count, len(words))) if a != b}


def _affinity(text: str | None, count: int) -> tuple[dict[int, int | None], dict[int, str]]:
    """NUMA node of each card and processors of each node, where a row ends in `<cpus> <node> N/A`."""
    numa: dict[int, int | None] = {}
    cpus: dict[int, str] = {}
    for index, words in _rows(text, count).items():
        tail = words[-3:]
        if len(tail) == 3 and re.fullmatch(r"\d+-\d+(,\d+-\d+)*", tail[0]):
            numa[index] = int(tail[1]) if tail[1].isdigit() else None
            cpus[numa[index] or 0] = tail[0]
    return numa, cpus

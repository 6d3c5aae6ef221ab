"""Cards: the driver, each planned card, and the NVLink between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from qwenlab.remote.gating.look import SMI_LIMIT_S, TEMPORARY, Gate, Problem, describe

NOT_LOADED = Problem("the NVIDIA driver is not loaded: modprobe nvidia, or reboot")
# exit code of nvidia-smi -> what keeps the driver from answering for any card
SILENT = {
    127: Problem("nvidia-smi is missing: the NVIDIA driver is not installed; deploy again"),
    124: Problem(f"nvidia-smi does not answer within {SMI_LIMIT_S} s: the driver hangs; reboot", TEMPORARY),
    18: Problem("the kernel runs another NVIDIA module than the library belongs to: reboot"),
    9: NOT_LOADED,
    12: NOT_LOADED,
}
OF_THE_HOST = ("n/a", "not supported")  # memory.total of a card that uses the host's RAM (GB10)


def check_driver(gate: Gate) -> Iterator[Problem]:
    """The kernel's module and the library are of one version."""
    if not gate.cards:
        return
    code, rows = gate.smi("--query-gpu=driver_version", "--format=csv,noheader")
    if code in SILENT:
        yield SILENT[code]
    elif rows and gate.module.exists():
        loaded, library = gate.module.read_text().strip(), rows[0][0]
        if loaded != library and library[:1].isdigit():
            yield Problem(f"the kernel runs NVIDIA module {loaded} and the library is {library}: reboot")


def check_cards(gate: Gate) -> Iterator[Problem]:
    """Every planned card is there, answers, and has room for what the plan puts on it."""
    if not gate.cards:
        return
    code, rows = gate.smi("--query-gpu=uuid,name,memory.total,memory.used", "--format=csv,noheader,nounits")
    if code in SILENT:
        return  # told by check_driver; it says nothing about the cards
    found = {row[0]: row for row in rows if len(row) == 4}
    if code == 15 and not found:  # then nvidia-smi answers for no card at all
        yield Problem("a card fell off the bus: see journalctl -k | grep -i xid; reboot")
        return
    shared = {uuid for uuid, row in found.items() if row[2].strip("[]").lower() in OF_THE_HOST} & without_memory(gate)
    for uuid in gate.cards:
        row = found.get(uuid)
        if row is None:
            words = "fell off the bus: see journalctl -k | grep -i xid; reboot" if code == 15 else "is not there"
            yield Problem(f"card {uuid} {words}; if it was taken out, deploy again for a plan without it")
            continue
        _, name, total, used = row
        need = gate.asked.get("need_mib", {}).get(uuid, 0)
        if uuid in shared:
            if (free := ram_available_mib(gate)) is not None and free < need:
                yield Problem(f"the host has {free} MiB of RAM available and the plan needs {need}", TEMPORARY)
            continue
        if not (total.isdigit() and used.isdigit()):
            yield Problem(f"card {uuid} ({name}) does not answer ({used}): see journalctl -k | grep -i xid; reboot")
            continue
        if int(total) - int(used) < need:
            yield Problem(
                f"card {uuid} ({name}) has {int(total) - int(used)} MiB free and the plan needs {need}: "
                f"{holders(gate, uuid) or 'no program is shown as holding it'}",
                TEMPORARY,
            )


def check_links(gate: Gate) -> Iterator[Problem]:
    """NVLink between the planned cards is as wide as it was when the plan was made."""
    planned = planned_lanes(gate)
    if not planned:
        return
    code, rows = gate.smi("--query-gpu=index,uuid", "--format=csv,noheader")
    if code in SILENT:
        return
    place = {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()}
    _, matrix = gate.smi("topo", "-m")
    cells = {row[0].split("\t")[0].strip(): [cell.strip() for cell in row[0].split("\t")[1:]] for row in matrix if row}
    for (a, b), lanes in planned.items():
        if a not in place or b not in place:
            continue  # told by check_cards
        line = cells.get(f"GPU{place[a]}", [])
        cell = line[place[b]] if place[b] < len(line) else ""
        now = int(cell[2:]) if cell.startswith("NV") and cell[2:].isdigit() else 0
        if now < lanes:
            yield Problem(
                f"NVLink between {a} and {b} has {now} of {lanes} lanes: reseat the bridge and reboot, "
                "or deploy again for a plan without it"
            )


def without_memory(gate: Gate) -> set[str]:
    """UUIDs of the cards that share the host's RAM, in the inventory that the plan was made from."""
    try:
        return {gpu["uuid"] for gpu in _inventory(gate)["gpus"] if gpu.get("memory_unified")}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def ram_available_mib(gate: Gate) -> int | None:
    """MemAvailable: on such a host nvidia-smi tells nothing, and CUDA's own figure leaves out what can be reclaimed."""
    try:
        lines = (gate.proc / "meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("MemAvailable:")), None)


def _inventory(gate: Gate) -> Any:
    return json.loads((gate.etc / "inventory.json").read_text())


def planned_lanes(gate: Gate) -> dict[tuple[str, str], int]:
    """NVLink lanes between this engine's cards, by UUID, in the inventory that the plan was made from."""
    try:
        inventory = _inventory(gate)
        uuids = {gpu["index"]: gpu["uuid"] for gpu in inventory["gpus"]}
        pairs = [(uuids[pair["a"]], uuids[pair["b"]], int(pair["nvlink_lanes"])) for pair in inventory["pairs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {(a, b): lanes for a, b, lanes in pairs if lanes and a in gate.cards and b in gate.cards}


def holders(gate: Gate, uuid: str) -> str:
    """Who holds memory of a card, as `held by process 12 (python3, user alice, 4096 MiB)`."""
    _, rows = gate.smi("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
    found = [f"{describe(gate.proc, row[1])[:-1]}, {row[2]} MiB)" for row in rows if len(row) == 3 and row[0] == uuid]
    return "held by " + "; ".join(found) if found else ""

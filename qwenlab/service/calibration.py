"""Calibration: what a host is asked to measure, and plan beside measurement for a person. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qwenlab.host_inventory import HostInventory
from qwenlab.measurement import Measurement
from qwenlab.planner.measured import measured_with
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.render import units_of
from qwenlab.settings import Settings

PINS = ("kv-cache-memory-bytes", "num-gpu-blocks-override")
SHOW_TRANSPORTS = {"NCCL_DEBUG": "INFO"}  # then NCCL names the way of every channel ("via P2P/CUMEM", "via SHM")


def due(bare: HostPlan, inventory: HostInventory, *, again: bool) -> list[EnginePlan]:
    """Engines of a plan made without measurements for which none holds."""
    held = [one.inputs for one in inventory.measurements]
    return [one for one in bare.engines if again or measured_with(one, inventory, bare.vllm) not in held]


def job(bare: HostPlan, engines: list[EnginePlan], inventory: HostInventory, settings: Settings) -> dict[str, Any]:
    """What calibrate.py is asked for: each engine's units without the pin, and what it is measured with."""
    return {
        "python": f"{settings.release_directory}/current/venv/bin/python",
        "environment": SHOW_TRANSPORTS,
        "names": [one.name for one in bare.engines],
        "engines": [
            {
                "name": one.name,
                "ranks": len(one.gpus),
                "inputs": measured_with(one, inventory, bare.vllm).model_dump(mode="json"),
                "units": [
                    {
                        "name": unit.name,
                        "args": {name: value for name, value in unit.args.items() if name not in PINS},
                    }
                    for unit in units_of(one, settings)
                ],
            }
            for one in engines
        ],
    }


def table(bare: EnginePlan, now: EnginePlan, found: Measurement) -> list[str]:
    """Plan and measurement of an engine side by side.

    Args:
        bare: the engine as planned without measurements.
        now: as planned with them.
        found: its measurement.
    """
    driver = f", driver {found.inputs.driver}" if found.inputs.driver else ""
    rows = [("", "planned", "measured", "now planned")]
    for rank, card in enumerate(bare.memory):
        after = now.memory[rank]
        rows.append(
            (
                f"rank {rank} beside the pool, GiB",
                f"{card.weights + card.workspace + card.graphs:.2f}",
                f"{found.beside_gib[rank]:.2f}" if rank < len(found.beside_gib) else "?",
                f"{after.weights + after.workspace + after.graphs:.2f}",
            )
        )
        rows.append((f"rank {rank} KV pool, GiB", f"{card.kv:.2f}", _available(found, rank), f"{after.kv:.2f}"))
    tokens = "?" if found.kv_tokens is None else f"{found.kv_tokens:,}"
    rows.append(("KV pool, tokens", _tokens(bare), tokens, _tokens(now)))
    rows.append(("longest context, tokens", f"{bare.max_model_len:,}", "", f"{now.max_model_len:,}"))
    if bare.tp * bare.pp > 1 and bare.gpus:
        rows.append(("between ranks", _way(bare) or "not foreseen", ", ".join(found.transports) or "not said", ""))
        rows.append(("all-reduce", _all_reduce(bare), ", ".join(found.all_reduce) or "not said", ""))
    width = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  " + "  ".join(cell.ljust(size) for cell, size in zip(row, width, strict=True)).rstrip() for row in rows]
    head = f"{found.engine} measured {found.at}, vLLM {found.inputs.vllm}{driver}"
    return [head, *lines, *(f"  note: {text}" for text in notes(bare, found))]


def notes(bare: EnginePlan, found: Measurement) -> list[str]:
    """What of a measurement its owner should look at."""
    said = []
    if found.cold:
        said.append("the compile caches were still cold: the pool may grow; calibrate with qwen_calibrate_again = True")
    return [*said, *transports_noted(bare, found.transports, found.all_reduce)]


def transports_noted(engine: EnginePlan, transports: Sequence[str], all_reduce: Sequence[str]) -> list[str]:
    """Where ranks talk to each other in another way than the plan counts on, in sentences."""
    said = []
    way = _way(engine)
    peer = any(one.startswith("P2P") for one in transports)
    if way == "P2P" and transports and not peer:
        said.append(
            f"the plan counts on peer access between the cards and NCCL took {', '.join(transports)}: "
            "plays/verify.py with qwen_verify_peers = True says why"
        )
    if way == "SHM" and peer:
        said.append("the plan keeps the cards from reading each other's memory and NCCL does it all the same")
    if _all_reduce(engine) == "CUSTOM" and all_reduce and not any("CUSTOM" in one for one in all_reduce):
        said.append(f"vLLM's own all-reduce was planned and is not used: {', '.join(all_reduce)}")
    return said


def _available(found: Measurement, rank: int) -> str:
    """Rank 0 alone prints it."""
    return f"{found.kv_available_gib[0]:.2f}" if rank == 0 and found.kv_available_gib else ""


def _tokens(engine: EnginePlan) -> str:
    return f"{engine.kv.tokens:,}" if engine.kv else "not planned"


def _all_reduce(engine: EnginePlan) -> str:
    if engine.tp == 1:
        return "none"
    return "NCCL" if engine.args.get("disable-custom-all-reduce") else "CUSTOM"


def _way(engine: EnginePlan) -> str | None:
    """The way between ranks that the plan counts on; None where it leaves the choice to NCCL."""
    if engine.env.get("NCCL_P2P_DISABLE") == "1":
        return "SHM"
    own = engine.tp > 1 and not engine.args.get("disable-custom-all-reduce")
    return "P2P" if own or "NCCL_P2P_LEVEL" in engine.env else None

"""A plan in words for its owner's terminal: layout, memory per card, each flag with its reason, what lost and why."""

from __future__ import annotations

import json

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.memory_bar import memory_legend, memory_line
from qwenlab.planner.plan import EnginePlan, HostPlan, Reason
from qwenlab.planner.topology import (
    card_name,
    form,
    headline,
    link_word,
    model_words,
    seats,
    speed_words,
    value_of,
)

BAR_WIDTH = 48
NAMES_WIDTH = 30  # a longer argument name widens the column: names are never cut


def explain(plan: HostPlan, inventory: HostInventory, console: Console) -> None:
    """Print the whole explanation."""
    host = inventory.hostname or "this host"
    console.print(Text.assemble((host, "bold"), ": ", headline(plan)), highlight=False)
    if inventory.gpus:
        console.print(_cards(inventory), highlight=False)
    for refusal in plan.refusals:
        console.print(Text.assemble(("refused ", "bold red"), (f"[{refusal.code}] ", "bold"), refusal.text))
    for engine in plan.engines:
        console.print(Panel(_engine(engine, inventory), title=f"{engine.name}, port {engine.port}", title_align="left"))
    for idle in plan.idle:
        console.print(Text.assemble(("idle ", "bold yellow"), f"{card_name(inventory, idle.gpu)}: {idle.why}"))
    for warning in plan.warnings:
        console.print(Text.assemble(("note ", "bold yellow"), warning))


def as_text(plan: HostPlan, inventory: HostInventory, width: int = 110) -> str:
    """The explanation without colours."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        explain(plan, inventory, console)
    return captured.get()


def _cards(inventory: HostInventory) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("card", no_wrap=True)
    for head in ("memory", "in use", "capability"):
        table.add_column(head, justify="right")
    for gpu in inventory.gpus:
        table.add_column(f"to {gpu.index}")
    for gpu in inventory.gpus:
        capability = ".".join(str(part) for part in gpu.compute_capability) if gpu.compute_capability else "?"
        links = [
            "-" if other.index == gpu.index else link_word(inventory.pair(gpu.index, other.index))
            for other in inventory.gpus
        ]
        table.add_row(
            f"[{gpu.index}] {gpu.name or '?'}".replace("[", r"\["),
            _gib(gpu.memory_total_mib),
            _gib(gpu.memory_used_mib),
            capability,
            *links,
        )
    return table


def _gib(mib: int | None) -> str:
    return "?" if mib is None else f"{mib / 1024:.1f} GiB"


def _engine(engine: EnginePlan, inventory: HostInventory) -> RenderableType:
    tree = Tree(Text(form(engine), style="bold"), guide_style="dim")
    for seat in seats(engine):
        tree.add(Text(f"{card_name(inventory, seat.uuid)}: {seat.role}"))
    blocks: list[RenderableType] = [Text(model_words(engine)), Text(f"expected: {speed_words(engine)}"), tree]
    if engine.memory:
        blocks += [Text("memory, GiB", style="bold"), *_bars(engine, inventory)]
    if engine.kv:
        pool = f"{engine.kv.blocks:,} blocks of {engine.kv.block_size:,} tokens"
        blocks.append(Text(f"KV pool: {engine.kv.tokens:,} tokens, {pool}"))
    if engine.processes:
        blocks.append(Text(f"runs as {len(engine.processes)} processes, one per stage"))
    blocks += [Text("why each setting", style="bold"), _reasons(engine)]
    if engine.rejected:
        blocks += [Text("what lost", style="bold"), _rejected(engine)]
    return Group(*blocks)


def _bars(engine: EnginePlan, inventory: HostInventory) -> list[Text]:
    names = [card_name(inventory, rank.gpu) for rank in engine.memory]
    wide = max(map(len, names))
    bars = [memory_line(rank, name, wide, BAR_WIDTH) for rank, name in zip(engine.memory, names, strict=True)]
    return [*bars, Text(" " * (wide + 1)).append_text(memory_legend())]


def _reasons(engine: EnginePlan) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False, expand=True)
    longest = max((len(name) for reason in engine.reasons for name in reason.sets), default=1)
    table.add_column(width=max(longest, NAMES_WIDTH), overflow="fold", style="cyan")
    table.add_column(ratio=1)
    for reason in engine.reasons:
        table.add_row(Text(_settings(engine, reason)), _why(reason))
    return table


def _settings(engine: EnginePlan, reason: Reason) -> str:
    lines = []
    for name in reason.sets:
        value = value_of(engine, name)
        lines.append(f"{name} {json.dumps(value) if isinstance(value, (dict, list, bool)) else value}")
    return "\n".join(lines) or "-"


def _why(reason: Reason) -> Text:
    return Text.assemble(reason.text, (f"  ({reason.rule}; {reason.evidence.value}: {reason.source})", "dim"))


def _rejected(engine: EnginePlan) -> RenderableType:
    rows = [Text.assemble((f"{one.layout}: ", "bold"), one.why) for one in engine.rejected]
    return Padding(Group(*rows), (0, 0, 0, 2))

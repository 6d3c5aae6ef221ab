"""A plan on one screen: what runs where, how far and how fast. The reasons are `explain`'s."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.memory_bar import memory_legend, memory_line
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.planner.topology import card_name, form, headline, kv_type, seats, speed_words

BAR_WIDTH = 40
LABEL_WIDTH = 14


def brief(plan: HostPlan, inventory: HostInventory, console: Console) -> None:
    """Print the plan without reasons: some ten lines an engine."""

    def say(*parts: str | tuple[str, str] | Text) -> None:
        console.print(Text.assemble(*parts), highlight=False)

    say((inventory.hostname or "this host", "bold"), ": ", headline(plan))
    for refusal in plan.refusals:
        say(("refused ", "bold red"), (f"[{refusal.code}] ", "bold"), refusal.text)
    for engine in plan.engines:
        say((f"{engine.name}, port {engine.port}: {form(engine)}", "bold"))
        for label, text in _rows(engine):
            say(f"  {label:<{LABEL_WIDTH}}", text)
        names = {seat.uuid: f"{card_name(inventory, seat.uuid)}, {seat.role}" for seat in seats(engine)}
        wide = max(map(len, names.values()), default=0)
        for rank in engine.memory:
            say("  ", memory_line(rank, names.get(rank.gpu, rank.gpu), wide, BAR_WIDTH))
        if not engine.memory:
            for name in names.values():
                say("  ", name)
    if any(engine.memory for engine in plan.engines):
        say("  GiB: ", memory_legend())
    for idle in plan.idle:
        say(("idle ", "bold yellow"), f"{card_name(inventory, idle.gpu)}: {idle.why}")
    for warning in _warnings(plan):
        say(("note ", "bold yellow"), warning)
    if plan.engines:
        say(("all arguments with their reasons: --explain", "dim"))


def _rows(engine: EnginePlan) -> list[tuple[str, str]]:
    drafts = "none"
    if engine.speculation:
        count = engine.speculation.tokens
        drafts = f"{engine.speculation.method}, {count} draft token" + ("s" if count > 1 else "")
        drafts += f", {engine.drafter.repo}" if engine.drafter else ""
    backend = f" on {engine.attention_backend}" if engine.attention_backend else ""
    pool = f"{engine.kv.tokens:,} tokens, " if engine.kv else ""
    prepared = f", prepared by {engine.checkpoint.preparation}" if engine.checkpoint.preparation else ""
    return [
        ("checkpoint", f"{engine.checkpoint.repo} ({engine.checkpoint.format}{prepared})"),
        ("speculation", drafts),
        ("context", f"{engine.max_model_len:,} tokens, {engine.max_num_seqs} seats"),
        ("KV pool", f"{pool}{kv_type(engine)}{backend}"),
        ("expected", speed_words(engine)),
    ]


def _warnings(plan: HostPlan) -> tuple[str, ...]:
    """Each note once, though several engines carry it."""
    return tuple(dict.fromkeys([*plan.warnings, *(text for engine in plan.engines for text in engine.warnings)]))

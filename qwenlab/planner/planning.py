"""From inventory and settings to the host's plan: cards, choice, the rules' arguments, what lost, what is refused."""

from __future__ import annotations

from dataclasses import replace

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.alternatives import card_names, form, idle_text, recipe_text, rejected, speed_text
from qwenlab.planner.cards import LeftOut, cards_of
from qwenlab.planner.checks import impossible, notes, obstacles, ports_refusal
from qwenlab.planner.choose import Choice, Chosen, Parallel, Search, choose
from qwenlab.planner.cpu import plan_cpu
from qwenlab.planner.demand import demand_of
from qwenlab.planner.measured import as_measured, expired, measurement_of, with_measurement
from qwenlab.planner.memory import budget
from qwenlab.planner.memory.errors import MemoryModelError
from qwenlab.planner.plan import EnginePlan, Evidence, HostPlan, IdleCard, Predicted, Reason, Refusal, Workload
from qwenlab.planner.recipes import knobs_of
from qwenlab.planner.refusals import refusals_of
from qwenlab.planner.render import render_engine
from qwenlab.planner.shape import Card, EngineShape
from qwenlab.settings import Settings

OVERRIDES = (
    "checkpoint",
    "speculation",
    "draft_tokens",
    "kv_cache_dtype",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "layer_split",
)
LEAST_LOSS_PERCENT = 0.5  # below it an override costs nothing that could be told
CHOICE_SOURCE = "qwenlab throughput and memory model; their errors are in docs/accuracy.md and docs/memory.md"


def plan(inventory: HostInventory, settings: Settings) -> HostPlan:
    """The best engines for a host, or why there is none. Deterministic: the same input gives the same plan."""
    if settings.engine == "cpu":
        return plan_cpu(inventory, settings)
    cards, left = cards_of(inventory, settings.cards)
    refusals = impossible(inventory, settings, cards)
    if not refusals:
        try:
            return _plan_cuda(inventory, settings, cards, left)
        except MemoryModelError as error:
            refusals = (Refusal(code="override-impossible", text=f"the settings describe no engine: {error}"),)
    return _refused(inventory, settings, left, refusals)


def _plan_cuda(
    inventory: HostInventory, settings: Settings, cards: tuple[Card, ...], left: tuple[LeftOut, ...]
) -> HostPlan:
    choice = choose(search_of(inventory, settings, cards))
    if not choice.engines:
        free = without_overrides(inventory, settings, cards)
        return _refused(inventory, settings, left, refusals_of(inventory, settings, cards, left, choice, free))
    if (beyond := ports_refusal(settings, len(choice.engines))) is not None:
        return _refused(inventory, settings, left, (beyond,))
    engines = tuple(_engine(choice, index, inventory, settings) for index in range(len(choice.engines)))
    idle = tuple(IdleCard(gpu=card.uuid, why=idle_text(choice, card)) for card in choice.idle)
    return HostPlan(
        status="planned",
        workload=Workload(settings.workload),
        vllm=settings.release.vllm,
        engines=engines,
        idle=(*idle, *_left_out(left)),
        warnings=_warnings(engines, choice, inventory, settings, cards),
    )


def _refused(
    inventory: HostInventory, settings: Settings, left: tuple[LeftOut, ...], refusals: tuple[Refusal, ...]
) -> HostPlan:
    told = {refusal.text for refusal in refusals}
    return HostPlan(
        status="refused",
        workload=Workload(settings.workload),
        vllm=settings.release.vllm,
        idle=_left_out(left),
        refusals=refusals,
        warnings=tuple(note for note in dict.fromkeys(notes(inventory, ())) if note not in told),
    )


def search_of(inventory: HostInventory, settings: Settings, cards: tuple[Card, ...]) -> Search:
    """The search over the layouts that the settings allow."""
    parallel = Parallel(settings.tensor_parallel, settings.pipeline_parallel, settings.data_parallel)
    if settings.layer_split is not None and parallel.pp is None:
        parallel = replace(parallel, pp=len(settings.layer_split))
    return Search(cards, inventory.pairs, demand_of(settings), knobs_of(settings), parallel, wsl2=inventory.wsl2)


def without_overrides(inventory: HostInventory, settings: Settings, cards: tuple[Card, ...]) -> Choice | None:
    """What would be chosen if the user fixed nothing; None when nothing is fixed."""
    fixed = _fixed(settings)
    if not fixed:
        return None
    free = settings.model_copy(update=dict.fromkeys(fixed))
    return choose(search_of(inventory, free, cards))


def _fixed(settings: Settings) -> list[str]:
    return [name for name in OVERRIDES if getattr(settings, name) is not None]


def _engine(choice: Choice, index: int, inventory: HostInventory, settings: Settings) -> EnginePlan:
    chosen = choice.engines[index]
    indexes = {card.index for card in chosen.cards}
    shape = replace(
        chosen.candidate.shape,
        cards=chosen.cards,
        dp=chosen.replicas,
        links=tuple(pair for pair in inventory.pairs if {pair.a, pair.b} <= indexes),
    )
    engine = _measured(
        render_engine(shape, index, settings, inventory, budget(shape)), shape, index, settings, inventory
    )
    candidate, copies = chosen.candidate, chosen.replicas
    return engine.model_copy(
        update={
            "predicted": Predicted(
                decode_tok_s=round(candidate.single_tok_s, 1),
                aggregate_tok_s=round(candidate.aggregate_tok_s * copies, 1),
                concurrency=candidate.streams * copies,
                prefill_tok_s=round(candidate.prefill_tok_s * copies, 1),
            ),
            "rejected": rejected(choice, chosen),
            "reasons": (_layout_reason(choice, chosen), *engine.reasons),
        }
    )


def _measured(
    engine: EnginePlan, shape: EngineShape, index: int, settings: Settings, inventory: HostInventory
) -> EnginePlan:
    """The engine with the memory that was measured on this host, where a measurement holds for it."""
    vllm = settings.release.vllm
    found = measurement_of(engine, inventory, vllm)
    if found is None:
        words = expired(engine, inventory, vllm)
        return engine.model_copy(update={"warnings": (*engine.warnings, words)}) if words else engine
    known = with_measurement(shape, found, context_given=settings.context is not None)
    if isinstance(known, str):
        return engine.model_copy(update={"warnings": (*engine.warnings, known)})
    return as_measured(render_engine(known, index, settings, inventory, budget(known)), found)


def _layout_reason(choice: Choice, chosen: Chosen) -> Reason:
    copies = f", {chosen.replicas} copies behind one port" if chosen.replicas > 1 else ""
    best = chosen.candidate
    text = (
        f"{form(chosen.footprint)} on {card_names(chosen.cards)}{copies}: {recipe_text(best.shape)} scores best for "
        f"this workload, {best.score:.1f}; expected {speed_text(best, chosen.replicas)}"
    )
    return Reason(rule="layout-choice", text=text, source=CHOICE_SOURCE, evidence=Evidence.DERIVED)


def _left_out(left: tuple[LeftOut, ...]) -> tuple[IdleCard, ...]:
    return tuple(IdleCard(gpu=card.uuid, why=card.why) for card in left)


def _warnings(
    engines: tuple[EnginePlan, ...],
    choice: Choice,
    inventory: HostInventory,
    settings: Settings,
    cards: tuple[Card, ...],
) -> tuple[str, ...]:
    """What the host's inventory says, engines' own warnings, each once, and what the user's overrides cost."""
    found = [
        *obstacles(inventory, settings),
        *notes(inventory, cards),
        *(warning for engine in engines for warning in engine.warnings),
    ]
    free = without_overrides(inventory, settings, cards)
    if free is not None and free.engines:
        names = ", ".join(f"qwen_{name}" for name in _fixed(settings))
        layout = " + ".join(
            f"{one.replicas} x {form(one.footprint)} ({recipe_text(one.candidate.shape)})" for one in free.engines
        )
        loss = 100 * (1 - choice.score / free.score)
        if loss >= LEAST_LOSS_PERCENT:
            found.append(f"{names}: the planner would choose {layout}; your choice scores {loss:.0f} % less")
    return tuple(dict.fromkeys(found))

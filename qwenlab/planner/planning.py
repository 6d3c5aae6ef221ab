"""From inventory and settings to the host's plan: cards, choice, the rules' arguments, what lost, what is refused."""

from __future__ import annotations

from dataclasses import replace

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.alternatives import card_names, form, idle_text, recipe_text, rejected, speed_text
from qwenlab.planner.checks import impossible, notes, obstacles, ports_refusal
from qwenlab.planner.choose import Choice, Chosen, Parallel, Search, choose
from qwenlab.planner.cpu import plan_cpu
from qwenlab.planner.demand import demand_of
from qwenlab.planner.host import Host, host_of
from qwenlab.planner.measured import as_measured, expired, measurement_of, with_measurement
from qwenlab.planner.memory.errors import MemoryModelError
from qwenlab.planner.plan import EnginePlan, Evidence, HostPlan, IdleCard, Predicted, Reason, Refusal, Workload
from qwenlab.planner.recipes import knobs_of
from qwenlab.planner.refusals import refusals_of
from qwenlab.planner.render import render_engine
from qwenlab.planner.shape import EngineShape
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
    host = host_of(inventory, settings)
    refusals = impossible(inventory, settings, host.cards)
    if not refusals:
        try:
            return _plan_cuda(host)
        except MemoryModelError as error:
            refusals = (Refusal(code="override-impossible", text=f"the settings describe no engine: {error}"),)
    return _refused(host, refusals)


def _plan_cuda(host: Host) -> HostPlan:
    settings = host.settings
    choice = choose(search_of(host))
    if not choice.engines:
        return _refused(host, refusals_of(host, choice, without_overrides(host)))
    if (beyond := ports_refusal(settings, len(choice.engines))) is not None:
        return _refused(host, (beyond,))
    engines = tuple(_engine(host, choice, index) for index in range(len(choice.engines)))
    idle = tuple(IdleCard(gpu=card.uuid, why=idle_text(choice, card)) for card in choice.idle)
    return HostPlan(
        status="planned",
        workload=Workload(settings.workload),
        vllm=settings.release.vllm,
        engines=engines,
        idle=(*idle, *_left_out(host)),
        warnings=_warnings(host, choice, engines),
    )


def _refused(host: Host, refusals: tuple[Refusal, ...]) -> HostPlan:
    told = {refusal.text for refusal in refusals}
    return HostPlan(
        status="refused",
        workload=Workload(host.settings.workload),
        vllm=host.settings.release.vllm,
        idle=_left_out(host),
        refusals=refusals,
        warnings=tuple(note for note in dict.fromkeys(notes(host.inventory, ())) if note not in told),
    )


def search_of(host: Host) -> Search:
    """The search over the layouts that the settings allow."""
    settings = host.settings
    parallel = Parallel(settings.tensor_parallel, settings.pipeline_parallel, settings.data_parallel)
    if settings.layer_split is not None and parallel.pp is None:
        parallel = replace(parallel, pp=len(settings.layer_split))
    return Search(host.cards, host.interconnect, demand_of(settings), knobs_of(settings), parallel)


def without_overrides(host: Host) -> Choice | None:
    """What would be chosen if the user fixed nothing; None when nothing is fixed."""
    fixed = _fixed(host.settings)
    if not fixed:
        return None
    free = host.settings.model_copy(update=dict.fromkeys(fixed))
    return choose(search_of(replace(host, settings=free)))


def _fixed(settings: Settings) -> list[str]:
    return [name for name in OVERRIDES if getattr(settings, name) is not None]


def _engine(host: Host, choice: Choice, index: int) -> EnginePlan:
    chosen = choice.engines[index]
    indexes = {card.index for card in chosen.cards}
    shape = replace(
        chosen.candidate.shape,
        cards=chosen.cards,
        dp=chosen.replicas,
        links=tuple(pair for pair in host.inventory.pairs if {pair.a, pair.b} <= indexes),
    )
    engine = _measured(host, shape, index)
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


def _measured(host: Host, shape: EngineShape, index: int) -> EnginePlan:
    """The engine of a shape, with the memory that was measured on this host where a measurement holds for it."""
    settings, inventory, vllm = host.settings, host.inventory, host.settings.release.vllm
    engine = render_engine(shape, index, settings, inventory)
    found = measurement_of(engine, inventory, vllm)
    if found is None:
        words = expired(engine, inventory, vllm)
        return engine.model_copy(update={"warnings": (*engine.warnings, words)}) if words else engine
    known = with_measurement(shape, found, context_given=settings.context is not None)
    if isinstance(known, str):
        return engine.model_copy(update={"warnings": (*engine.warnings, known)})
    return as_measured(render_engine(known, index, settings, inventory), found)


def _layout_reason(choice: Choice, chosen: Chosen) -> Reason:
    copies = f", {chosen.replicas} copies behind one port" if chosen.replicas > 1 else ""
    best = chosen.candidate
    text = (
        f"{form(chosen.footprint)} on {card_names(chosen.cards)}{copies}: {recipe_text(best.shape)} scores best for "
        f"this workload, {best.score:.1f}; expected {speed_text(best, chosen.replicas)}"
    )
    return Reason(rule="layout-choice", text=text, source=CHOICE_SOURCE, evidence=Evidence.DERIVED)


def _left_out(host: Host) -> tuple[IdleCard, ...]:
    return tuple(IdleCard(gpu=card.uuid, why=card.why) for card in host.left_out)


def _warnings(host: Host, choice: Choice, engines: tuple[EnginePlan, ...]) -> tuple[str, ...]:
    """What the host's inventory says, engines' own warnings, each once, and what the user's overrides cost."""
    found = [
        *obstacles(host.inventory, host.settings),
        *notes(host.inventory, host.cards),
        *(warning for engine in engines for warning in engine.warnings),
    ]
    free = without_overrides(host)
    if free is not None and free.engines:
        names = ", ".join(f"qwen_{name}" for name in _fixed(host.settings))
        layout = " + ".join(
            f"{one.replicas} x {form(one.footprint)} ({recipe_text(one.candidate.shape)})" for one in free.engines
        )
        loss = 100 * (1 - choice.score / free.score)
        if loss >= LEAST_LOSS_PERCENT:
            found.append(f"{names}: the planner would choose {layout}; your choice scores {loss:.0f} % less")
    return tuple(dict.fromkeys(found))

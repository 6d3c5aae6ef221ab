"""The best ways to run one engine on given cards, each with its speed, its window and a score to compare by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from qwenlab.planner.assignment import Assignment
from qwenlab.planner.catalogue import CheckpointSpec, checkpoints
from qwenlab.planner.geometry import LEAST_STAGE_LAYERS
from qwenlab.planner.layouts import Place, splits
from qwenlab.planner.memory.reserve import graphs_gib, margin_gib, workspace_gib
from qwenlab.planner.recipes import Recipe, allowed, combinations_for, drafts_among_many, format_weight
from qwenlab.planner.shape import EngineShape
from qwenlab.planner.sizing import LONGEST, longest_window, residency, settled, shape_of
from qwenlab.planner.throughput import LAYERS, Link, Work, prefill_tok_s, step_ms, tokens_per_step
from qwenlab.planner.traffic import work_of

ALONE = 0.75  # weight of a request that has the engine for itself, where latency counts
WINDOW_BONUS = 0.05  # of the score, for a window as long as the model's own
# HyperQwen README's decision tree; club-3090: a drafter halves the rate at eight long prompts; on an H200 DFlash2
# gained nothing at 64 (measured, vLLM 0.30.0).
SPECULATION_PAYS = 8
FEW_SEATS = 8  # where room for the logits of all seats would leave no pool


@dataclass(frozen=True)
class Candidate:
    """One way to run one engine replica on these cards.

    Attributes:
        score: what the choice compares; tok/s of a request of the workload, weighed by format and window.
        single_tok_s, aggregate_tok_s: decode rate of one stream, and of `streams` together.
        resident: requests of the workload's depth that the pool holds at once.
    """

    shape: EngineShape
    score: float
    single_tok_s: float
    aggregate_tok_s: float
    streams: int
    prefill_tok_s: float
    resident: int


@dataclass(frozen=True)
class Evaluation:
    """Candidates of one footprint, best first.

    Without any, `why` says what rules it out, or `misfit` is the shape that came closest to fitting.
    """

    candidates: tuple[Candidate, ...]
    why: str | None = None
    misfit: EngineShape | None = None

    @property
    def best(self) -> Candidate | None:
        """The candidate with the highest score."""
        return self.candidates[0] if self.candidates else None


@dataclass(frozen=True)
class _Run:
    """A recipe on a layer split.

    Attributes:
        weight: of the checkpoint's format and the KV data type in the score.
        accepted: tokens per verify step.
        bound: score at full residency and with the longest window: no more is possible, whatever the memory says.
    """

    spec: CheckpointSpec
    recipe: Recipe
    weight: float
    accepted: float
    split: tuple[int, ...]
    bound: float

    def work(self, assignment: Assignment) -> Work:
        """The throughput model's view."""
        return work_of(self.spec.key, self.recipe, assignment.place, self.split, assignment.demand.depth)

    def shape(self, assignment: Assignment) -> EngineShape:
        """The memory model's view."""
        return shape_of(assignment, self.spec, self.recipe, self.split)


@dataclass(frozen=True)
class _TooSmall:
    """A run whose longest window is below what is needed."""

    shape: EngineShape
    length: int


@lru_cache(maxsize=16_384)
def evaluate(assignment: Assignment, *, alone: bool = True, kept: int = 1) -> Evaluation:
    """The best candidates for an assignment.

    Args:
        assignment: the cards and what is asked of them.
        alone: the cards may also serve one by one: a pipeline that cannot beat them so is not looked at further.
        kept: candidates to rank; more than one is for the explanation.
    """
    floor = _one_by_one(assignment) if assignment.place.pp > 1 and alone else 0.0
    found: list[Candidate] = []
    closest: _TooSmall | None = None
    why: str | None = None
    for run in _runs(assignment):
        if run.bound <= floor:
            why = f"a pipeline scores {run.bound:.1f} at most, its cards one by one {floor:.1f}"
            break
        beaten = found[-1].score if len(found) >= kept else 0.0
        if run.bound <= beaten:
            break
        best, too_small = _best_split(run, assignment, beaten)
        closest = _longer(closest, too_small)
        if best is not None:
            found = sorted([*found, best], key=lambda candidate: -candidate.score)[:kept]
    if found:
        return Evaluation(tuple(found))
    if closest is not None and why is None:
        return Evaluation((), misfit=replace(closest.shape, max_model_len=assignment.least_context))
    return Evaluation((), why or _nothing_runs(assignment))


def _best_split(run: _Run, assignment: Assignment, beaten: float) -> tuple[Candidate | None, _TooSmall | None]:
    """The best layer split of a run, looked for while its bound is above `beaten`; and the best that was too small."""
    best: Candidate | None = None
    closest: _TooSmall | None = None
    for concrete in _concrete(run, assignment):
        if concrete.bound <= (best.score if best is not None else beaten):
            break
        result = _sized(concrete, assignment)
        if isinstance(result, _TooSmall):
            closest = _longer(closest, result)
        elif best is None or result.score > best.score:
            best = result
    return best, closest


def _longer(first: _TooSmall | None, second: _TooSmall | None) -> _TooSmall | None:
    """The one with the longer window; the first where they are equal."""
    if first is None or (second is not None and second.length > first.length):
        return second
    return first


def _one_by_one(assignment: Assignment) -> float:
    """What the cards of a pipeline reach without it: the sum for throughput, the best one where latency counts.

    `streams` never favours it: throughput grows with streams, so a card gets the rounded-down share; latency suffers
    from them, so the best card gets all.
    """
    cards, streams, additive = assignment.place.cards, assignment.streams, assignment.demand.additive
    each = max(1, streams // len(cards)) if additive else streams
    singles = (assignment.on(Place((card,), 1, 1, Link.NVSWITCH), each) for card in cards)
    scores = [found.best.score for single in singles if (found := evaluate(single)).best]
    return (sum(scores) if additive else max(scores)) if scores else 0.0


def _nothing_runs(assignment: Assignment) -> str:
    specs = list(dict.fromkeys(spec for spec, _ in combinations_for(assignment.knobs)))
    if not specs:
        return "the settings leave no checkpoint and recipe of the catalogue"
    cards = assignment.place.cards
    smallest = min(specs, key=lambda spec: spec.total_gib)
    if not _has_room(smallest, assignment.place):
        room = sum(max(0.0, card.memory_gib - card.in_use_gib) for card in cards)
        return (
            f"the smallest checkpoint ({smallest.key}) has {smallest.total_gib:.1f} GiB of weights; "
            f"{room:.1f} GiB are free on {len(cards)} card{'s' if len(cards) > 1 else ''}"
        )
    return "no recipe of the table runs on this silicon in this form"


@lru_cache(maxsize=1024)
def _runs(assignment: Assignment) -> tuple[_Run, ...]:
    """Recipes that the silicon allows, fastest first."""
    place, demand, knobs = assignment.place, assignment.demand, assignment.knobs
    runs = []
    corners = _corners(place)
    weights = {
        spec.key: format_weight(spec, place.cards, knobs.quality)
        for spec in checkpoints().values()
        if _has_room(spec, place)
    }
    prefill: dict[str, float] = {}  # by kernel: of the parts of a recipe, a prompt depends on nothing else
    for spec, recipe in combinations_for(knobs):
        if spec.key not in weights:
            continue
        too_busy = demand.additive and assignment.streams > SPECULATION_PAYS and not drafts_among_many(recipe, place)
        if too_busy or not allowed(recipe, spec, place.cards, place.tp, place.pp):
            continue
        work = work_of(spec.key, recipe, place, corners[0], demand.depth)
        works = [work, *(work.over(corner) for corner in corners[1:])]
        kernel = work.weights.kernel
        if kernel not in prefill:
            prefill[kernel] = _prompt_rate(works)
        weight = weights[spec.key] * recipe.quality
        accepted = tokens_per_step(demand.text, recipe.method, recipe.tokens)
        bound = weight * (1 + WINDOW_BONUS) * _rate(works, assignment, accepted, prefill[kernel])
        runs.append(_Run(spec, recipe, weight, accepted, corners[0], bound))
    return tuple(sorted(runs, key=lambda run: -run.bound))


def _has_room(spec: CheckpointSpec, place: Place) -> bool:
    """Whether the weights alone could lie on the cards at all."""
    stages = [place.cards[i : i + place.tp] for i in range(0, len(place.cards), place.tp)]
    room = sum(min(card.memory_gib - card.in_use_gib for card in stage) * place.tp for stage in stages)
    gib = spec.gib
    return spec.total_gib - gib["vision"] - gib["mtp"] <= room


def _most_layers(run: _Run, assignment: Assignment) -> list[int]:
    """Above how many layers a stage cannot hold even their weights beside what it keeps anyway; by stage."""
    place, shape = assignment.place, run.shape(assignment)
    shape = replace(shape, max_num_seqs=min(shape.max_num_seqs, FEW_SEATS))
    gib = run.spec.gib
    layer = min(gib["attention_layer"], gib["gdn_layer"]) / place.tp
    most = []
    for stage in range(place.pp):
        card = place.cards[stage * place.tp]
        ends = (gib["embedding"] if stage == 0 else 0.0) + (gib["lm_head"] if stage == place.pp - 1 else 0.0)
        kept = workspace_gib(shape, stage) + graphs_gib(shape, stage) + margin_gib(card) + ends / place.tp
        most.append(int((card.memory_gib - card.in_use_gib - kept) / layer))
    return most


def _corners(place: Place) -> list[tuple[int, ...]]:
    """As few layers as allowed on all stages but one, for each: step and prompt times are linear between them."""
    rest = LAYERS - LEAST_STAGE_LAYERS * (place.pp - 1)
    return [tuple(rest if i == big else LEAST_STAGE_LAYERS for i in range(place.pp)) for big in range(place.pp)]


def _concrete(run: _Run, assignment: Assignment) -> Iterator[_Run]:
    """The run with every layer split, fastest first."""
    place, fixed = assignment.place, assignment.knobs.layer_split
    if place.pp == 1:
        return iter((run,))
    wanted = [fixed] if fixed and len(fixed) == place.pp else splits(place.pp, LAYERS, place.grid)
    most = _most_layers(run, assignment)
    work = run.work(assignment)
    options = []
    for split in wanted:
        if all(layers <= limit for layers, limit in zip(split, most, strict=True)):
            over = work.over(split)
            rate = _rate((over,), assignment, run.accepted, prefill_tok_s(over))
            bound = run.weight * (1 + WINDOW_BONUS) * rate
            options.append(_Run(run.spec, run.recipe, run.weight, run.accepted, split, bound))
    return iter(sorted(options, key=lambda option: -option.bound))


def _prompt_rate(works: Sequence[Work]) -> float:
    """Prompt tokens per second: of one split, or above all between several."""
    return max([prefill_tok_s(work, ideal=len(works) > 1) for work in works])


def _rate(
    works: Sequence[Work], assignment: Assignment, accepted: float, prefill: float, resident: int | None = None
) -> float:
    """tok/s of one request (weighted geometric mean of alone and among all streams), or of all for throughput.

    Args:
        works: of one layer split, or the corners of a pipeline's splits: the rate then bounds every split between them.
        assignment: the streams and what they ask for.
        accepted: tokens per verify step.
        prefill: prompt tokens per second.
        resident: streams that the KV pool holds at once, the others wait; None: all.
    """
    demand, streams = assignment.demand, assignment.streams
    ideal = len(works) > 1
    together = streams if resident is None else max(1, min(streams, resident))
    busy = min([step_ms(work, streams=together, ideal=ideal) for work in works]) / 1e3 / accepted
    waves = streams / together
    crowded = waves * (together * demand.fresh / prefill + demand.answer * busy)
    if demand.additive:
        return streams * demand.answer / crowded
    step = min([step_ms(work, ideal=ideal) for work in works])
    alone = demand.fresh / prefill + demand.answer * step / 1e3 / accepted
    return float(demand.answer / (alone**ALONE * crowded ** (1 - ALONE)))


def _sized(run: _Run, assignment: Assignment) -> Candidate | _TooSmall:
    """The run with its memory: a candidate, or how far it got."""
    demand, needed = assignment.demand, assignment.least_context
    shape = run.shape(assignment)
    length = longest_window(shape)
    if length < needed and shape.max_num_seqs > FEW_SEATS:
        shape = replace(shape, max_num_seqs=FEW_SEATS)
        length = longest_window(shape)
    if length < needed:
        return _TooSmall(shape, length)
    window = demand.context if demand.context_required else length
    shape, resident = residency(replace(shape, max_model_len=window), demand, assignment.streams)
    work = run.work(assignment)
    reach = min(1.0, length / demand.context) * (1 + WINDOW_BONUS * length / LONGEST)
    together = min(assignment.streams, resident)
    prefill = prefill_tok_s(work)
    return Candidate(
        shape=shape,
        score=run.weight * reach * _rate((work,), assignment, run.accepted, prefill, resident),
        single_tok_s=run.accepted * 1e3 / step_ms(work),
        aggregate_tok_s=together * run.accepted * 1e3 / step_ms(work, streams=together),
        streams=together,
        prefill_tok_s=prefill,
        resident=resident,
    )


def finished(candidate: Candidate) -> Candidate:
    """The candidate with seats that its recurrent states can hold, and larger prompt chunks where they cost nothing."""
    return replace(candidate, shape=settled(candidate.shape))

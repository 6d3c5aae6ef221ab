"""Does an engine shape fit its cards: the memory of every rank, the pool that is left, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from qwenlab.planner.memory.config import config_of
from qwenlab.planner.memory.layout import GIB
from qwenlab.planner.memory.pool import KvPool, pool_of, stage_layouts
from qwenlab.planner.memory.reserve import graphs_gib, margin_gib, workspace_gib
from qwenlab.planner.memory.weights import weights_per_stage
from qwenlab.planner.plan import RankMemory
from qwenlab.planner.shape import Card, EngineShape


@dataclass(frozen=True)
class RankBudget:
    """One card's memory in GiB; `free` is what nothing has claimed, negative where the card is overcommitted."""

    gpu: str
    weights: float
    kv: float
    workspace: float
    graphs: float
    in_use: float
    margin: float
    total: float

    @property
    def free(self) -> float:
        """What is left after every part, the margin included."""
        return self.total - (self.weights + self.kv + self.workspace + self.graphs + self.in_use + self.margin)

    def as_plan(self) -> RankMemory:
        """The form that the plan carries."""
        parts = ("weights", "kv", "workspace", "graphs", "in_use", "margin", "total")
        return RankMemory(gpu=self.gpu, **{part: round(getattr(self, part), 3) for part in parts})


@dataclass(frozen=True)
class Budget:
    """The memory of one engine shape.

    Attributes:
        ranks: one entry per card, in the shape's order.
        pool: of one replica; None where no KV byte is left.
        kv_bytes: the pool in bytes on the fullest card of a replica, to be pinned; 0 where none is left.
        seats: requests of the shape's full length that are resident at once.
        fits: every card holds its parts and one full-length request has its blocks.
        why: the first thing that does not fit, in words; None when it fits.
    """

    ranks: tuple[RankBudget, ...]
    pool: KvPool | None
    kv_bytes: int
    seats: int
    fits: bool
    why: str | None


def budget(shape: EngineShape) -> Budget:
    """The budget of a shape: with `kv_bytes` for that pinned pool, else for the largest pool that leaves the margin."""
    return _budget(shape)


@lru_cache(maxsize=65_536)
def _budget(shape: EngineShape) -> Budget:
    config = config_of(shape)
    layouts = stage_layouts(config)
    weights = weights_per_stage(shape)
    fixed = [(workspace_gib(shape, stage), graphs_gib(shape, stage)) for stage in range(shape.pp)]
    cards = shape.cards
    parts = [
        _parts(weights[stage], *fixed[stage], shape.beside_gib[rank] if shape.beside_gib is not None else None)
        for rank, stage in enumerate(_stages(shape))
    ]
    left = [_gib_left(card, part, shape.gpu_memory_utilization) for card, part in zip(cards, parts, strict=True)]
    if shape.kv_bytes is not None:
        blocks = min(shape.kv_bytes // layout.block_bytes for layout in layouts)
    else:
        blocks = min(
            int(gib * GIB) // layouts[stage].block_bytes for gib, stage in zip(left, _stages(shape), strict=True)
        )
    kv_pool = pool_of(config, blocks=blocks) if blocks > 0 else None
    kv = [max(0, blocks) * layout.block_bytes for layout in layouts]
    ranks = tuple(
        RankBudget(
            gpu=card.uuid,
            weights=part.weights,
            kv=kv[stage] / GIB,
            workspace=part.workspace,
            graphs=part.graphs,
            in_use=card.in_use_gib,
            margin=margin_gib(card),
            total=card.memory_gib,
        )
        for card, stage, part in zip(cards, _stages(shape), parts, strict=True)
    )
    why = _why_not(shape, ranks, left, kv_pool)
    return Budget(
        ranks=ranks,
        pool=kv_pool,
        kv_bytes=max(kv),
        seats=kv_pool.seats(shape.max_model_len) if kv_pool else 0,
        fits=why is None,
        why=why,
    )


def _stages(shape: EngineShape) -> list[int]:
    return [stage for _ in range(shape.dp) for stage in range(shape.pp) for _ in range(shape.tp)]


@dataclass(frozen=True)
class _Parts:
    """What one rank takes beside its pool, in GiB."""

    weights: float
    workspace: float
    graphs: float


def _parts(weights: float, workspace: float, graphs: float, measured: float | None) -> _Parts:
    """The model's parts, or, with a measured sum, parts that add up to it: the model is surest of the weights."""
    if measured is None:
        return _Parts(weights, workspace, graphs)
    weights = min(weights, measured)
    graphs = min(graphs, measured - weights)
    return _Parts(weights, measured - weights - graphs, graphs)


def _gib_left(card: Card, parts: _Parts, utilization: float | None) -> float:
    usable = card.memory_gib - card.in_use_gib - margin_gib(card)
    if utilization is not None:
        usable = min(usable, utilization * card.memory_gib)
    return usable - parts.weights - parts.workspace - parts.graphs


def _why_not(
    shape: EngineShape, ranks: tuple[RankBudget, ...], left: list[float], kv_pool: KvPool | None
) -> str | None:
    tightest = min(range(len(ranks)), key=lambda rank: left[rank])
    if kv_pool is None:
        rank, card = ranks[tightest], shape.cards[tightest]
        return (
            f"card {card.index} ({card.name}, {rank.total:.1f} GiB) has no room for a KV pool: "
            f"weights {rank.weights:.2f}, workspace {rank.workspace:.2f}, graphs {rank.graphs:.2f}, "
            f"in use {rank.in_use:.2f}, kept free {rank.margin:.2f} GiB; {-left[tightest]:.2f} GiB short"
        )
    for card, rank in zip(shape.cards, ranks, strict=True):
        if rank.free < -1e-9:
            return (
                f"card {card.index} ({card.name}, {rank.total:.1f} GiB) is overcommitted by {-rank.free:.2f} GiB "
                f"with a KV pool of {rank.kv:.2f} GiB"
            )
    return kv_pool.refusal

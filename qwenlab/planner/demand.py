"""What a workload asks of an engine, as numbers that layouts are scored by."""

from __future__ import annotations

from dataclasses import dataclass

from qwenlab.planner.plan import Workload
from qwenlab.settings import Settings


@dataclass(frozen=True)
class Demand:
    """One kind of request, and how many at once over the host.

    Attributes:
        text: row of the acceptance table.
        depth: tokens in the cache while it answers.
        fresh: prompt tokens that the prefix cache lacks; answer: tokens written.
        concurrency: requests at once; seats: `--max-num-seqs` of a single engine before the pool limits it.
        context: tokens one request should be able to hold; a shorter window counts proportionally less.
        context_required: the user named it, so anything shorter is refused.
        additive: every engine counts fully (throughput); else the best one counts and the others a little.
    """

    text: str
    depth: int
    fresh: int
    answer: int
    concurrency: int
    seats: int
    context: int
    context_required: bool = False
    additive: bool = False
    vision: bool = False


# depth and lengths: chat and edit as in HyperQwen's real_rep and copy benches, batch as its burst (about 1,000 in,
# 256 to 512 out at 64), long as a further turn of a 150,000-token conversation whose prefix is cached.
_USUAL = {
    Workload.CHAT: Demand("chat", 4000, 500, 600, 4, 8, 65_536),
    Workload.BATCH: Demand("batch", 2000, 1000, 500, 64, 64, 32_768, additive=True),
    Workload.LONG: Demand("long", 150_000, 4000, 1000, 1, 2, 150_000),
    Workload.EDIT: Demand("edit", 16_000, 1000, 1500, 1, 4, 65_536),
}
LEAST_CONTEXT = 8192  # below this an engine is not worth starting


def demand_of(settings: Settings) -> Demand:
    """The demand that the settings describe."""
    usual = _USUAL[Workload(settings.workload)]
    concurrency = settings.concurrency or usual.concurrency
    context = settings.context or usual.context
    return Demand(
        text=usual.text,
        depth=min(usual.depth, context),
        fresh=min(usual.fresh, context // 4),
        answer=usual.answer,
        concurrency=concurrency,
        seats=max(concurrency, usual.seats) if settings.concurrency is None else concurrency,
        context=context,
        context_required=settings.context is not None,
        additive=usual.additive or concurrency >= 8,
        vision=settings.vision,
    )

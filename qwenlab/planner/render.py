"""From an engine's shape to its plan: the rules' arguments, variables, patches and reasons, the user's over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.catalogue import CheckpointSpec, DrafterSpec, checkpoints, drafter_checkpoints
from qwenlab.planner.memory import budget, kv_layout
from qwenlab.planner.plan import Checkpoint, EnginePlan, KvPool, NodeProcess, Reason, Workload
from qwenlab.planner.rules import TABLE, Context, Rule
from qwenlab.planner.rules.overrides import force, seats_of
from qwenlab.planner.shape import EngineShape
from qwenlab.settings import Settings

UNPINNED = "main"  # the branch that a revision is resolved from when the checkpoint is fetched
DEFAULT_UTILIZATION = 0.92  # vLLM's own
CONTEXT_GIB = 0.75  # CUDA context and rounding: a headless RTX 3090 starts at 0.972 and not above


class RuleConflictError(ValueError):
    """Two rules set the same name to different values: a fault of the table."""


@dataclass
class _Draft:
    """What the rules have said so far."""

    nodes: int
    args: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    node_env: list[dict[str, str]] = field(default_factory=list)
    patches: list[str] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, rule: Rule, context: Context) -> None:
        """Apply one rule."""
        effect = rule.then(context)
        _merge(self.args, effect.args, rule.id)
        _merge(self.env, effect.env, rule.id)
        for place, variables in enumerate(effect.nodes):
            _merge(self.node_env[place], variables, rule.id)
        self.patches += [patch for patch in effect.patches if patch not in self.patches]
        reason = rule.reason(effect)
        self.reasons.append(reason)
        if effect.warning:
            self.warnings.append(reason.text)


def render_engine(shape: EngineShape, index: int, settings: Settings, inventory: HostInventory) -> EnginePlan:
    """The plan of one engine, without prediction and rejected candidates (the choice adds those).

    Args:
        shape: the engine.
        index: its place on the host, from 0: gives name and port.
        settings: the host's settings; their overrides win and are annotated.
        inventory: the host.

    Raises:
        RuleConflictError: two rules disagree, a fault of the table.
    """
    memory = budget(shape)
    context = _context(shape, index, settings, inventory)
    draft = _Draft(nodes=len(context.nodes), node_env=[{} for _ in context.nodes])
    for rule in TABLE:
        if rule.applies(context):
            draft.add(rule, context)
    forced = force(draft.args, draft.env, settings.engine_args, settings.engine_env)
    pool = memory.pool
    return EnginePlan(
        name=f"engine{index + 1}",
        port=context.port,
        gpus=tuple(card.uuid for card in shape.cards),
        tp=shape.tp,
        pp=shape.pp,
        dp=shape.dp,
        partition=shape.partition,
        processes=_processes(context, draft, forced.env, settings.engine_env),
        checkpoint=_checkpoint(context.checkpoint),
        drafter=_checkpoint(context.drafter) if context.drafter else None,
        speculation=shape.speculation,
        kv_cache_dtype=shape.kv_dtype,
        attention_backend=shape.attention_backend,
        max_model_len=shape.max_model_len,
        max_num_seqs=seats_of(forced.args, shape.max_num_seqs),
        args=forced.args,
        env=forced.env,
        patches=tuple(draft.patches),
        memory=tuple(rank.as_plan() for rank in memory.ranks),
        kv=KvPool(blocks=pool.num_blocks, block_size=pool.block_size, tokens=pool.pool_tokens) if pool else None,
        reasons=(*draft.reasons, *forced.reasons),
        warnings=(*draft.warnings, *_unpinned(context), *forced.warnings),
    )


def _context(shape: EngineShape, index: int, settings: Settings, inventory: HostInventory) -> Context:
    """What the rules look at."""
    memory = budget(shape)
    spec = checkpoints()[shape.checkpoint]
    drafter = drafter_checkpoints()[shape.drafter] if shape.drafter else None
    return Context(
        shape=shape,
        index=index,
        inventory=inventory,
        checkpoint=spec,
        drafter=drafter,
        workload=Workload(settings.workload),
        layout=kv_layout(shape),
        blocks=memory.pool.num_blocks if memory.pool else None,
        kv_bytes=memory.kv_bytes or None,
        utilization=utilization(shape),
        model_path=_checkpoint(spec).directory(settings.model_directory),
        drafter_path=_checkpoint(drafter).directory(settings.model_directory) if drafter else None,
        served_names=tuple(settings.served_model_names),
        host=settings.engine_address,
        port=settings.port + index,
        home=settings.home,
        multicast=settings.nvlink_multicast,
        tuned_block_fp8=settings.tuned_block_fp8,
    )


def utilization(shape: EngineShape) -> float:
    """The share of each card that vLLM asks to be free at boot, two decimals.

    It is what the plan claims on the fullest card, at most what the card that others use most has free once the
    engine's own CUDA context is there.
    """
    if shape.gpu_memory_utilization is not None:
        return shape.gpu_memory_utilization
    ranks = budget(shape).ranks
    if not ranks:
        return DEFAULT_UTILIZATION
    claimed = max((rank.weights + rank.kv + rank.workspace + rank.graphs) / rank.total for rank in ranks)
    free = min((rank.total - rank.in_use - CONTEXT_GIB) / rank.total for rank in ranks)
    return max(0.01, floor(min(claimed, free) * 100) / 100)


def _merge(into: dict[str, Any], extra: Mapping[str, Any], rule: str) -> None:
    for key, value in extra.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            _merge(old, value, rule)
        elif key in into and old != value:
            raise RuleConflictError(f"rule {rule} sets {key} to {value!r}, an earlier one to {old!r}")
        else:
            into[key] = _copy(value)


def _copy(value: Any) -> Any:
    """A rule's mappings are constants of the table; the plan gets its own."""
    return {key: _copy(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value


def _checkpoint(spec: CheckpointSpec | DrafterSpec) -> Checkpoint:
    preparation = spec.preparation if isinstance(spec, CheckpointSpec) else None
    return Checkpoint(repo=spec.repo, revision=spec.revision or UNPINNED, format=spec.format, preparation=preparation)


def _unpinned(context: Context) -> tuple[str, ...]:
    specs = [spec for spec in (context.checkpoint, context.drafter) if spec is not None and spec.revision is None]
    return tuple(
        f"no commit of {spec.repo} is published in the catalogue: it is resolved when the checkpoint is first fetched"
        for spec in specs
    )


def _processes(
    context: Context, draft: _Draft, env: Mapping[str, str], user_env: Mapping[str, str]
) -> tuple[NodeProcess, ...]:
    processes = []
    for rank, (cards, variables) in enumerate(zip(context.nodes, draft.node_env, strict=True)):
        args: dict[str, Any] = {"node-rank": rank}
        if rank:
            args["headless"] = True
        own = {name: text for name, text in variables.items() if env.get(name) != text and name not in user_env}
        processes.append(NodeProcess(node_rank=rank, gpus=tuple(card.uuid for card in cards), args=args, env=own))
    return tuple(processes)

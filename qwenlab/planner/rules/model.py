"""What a rule is: one entry of the table that turns an engine's shape into arguments, variables and patches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from qwenlab.planner.plan import Evidence, Reason
from qwenlab.planner.rules.context import Context
from qwenlab.planner.shape import EngineShape


class Topic(StrEnum):
    """Chapter of docs/rules.md that a rule belongs to."""

    LAYOUT = "Layouts"
    PLACEMENT = "Cards and ranks"
    COMMUNICATION = "Between the cards"
    ATTENTION = "Attention and KV data types"
    SPECULATION = "Speculative decoding"
    MEMORY = "Memory"
    KERNELS = "Kernels and compilation"
    HOST = "Host"
    SERVING = "API"
    PATCHES = "Patches"
    OVERRIDES = "Settings that the user forces"


@dataclass(frozen=True)
class Effect:
    """What a rule adds to an engine.

    Attributes:
        args: keys of `vllm serve --config`'s YAML; JSON options are mappings and are merged key by key.
        env: environment variables of every process of the engine.
        nodes: per node process (same order as the context's nodes), variables of that process only.
        patches: ids of the series that the engine needs.
        warning: what the owner should know although the engine is planned.
        says: values for the placeholders of the rule's sentence.
    """

    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Mapping[str, str], ...] = ()
    patches: tuple[str, ...] = ()
    warning: bool = False
    says: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[str, ...]:
        """Names that the effect accounts for: arguments (`option.key` in a JSON option), variables, patches."""
        names = [
            full
            for name, value in self.args.items()
            for full in ([f"{name}.{key}" for key in value] if isinstance(value, Mapping) else [name])
        ]
        per_node = {name: None for node in self.nodes for name in node}
        return (*names, *self.env, *per_node, *self.patches)


@dataclass(frozen=True)
class Rule:
    """One entry of the table.

    Attributes:
        id: stable name, in words.
        topic: chapter.
        when: the condition in words, for the documentation.
        applies: the condition.
        then: what the rule adds; called only where it applies.
        because: one sentence with placeholders out of `Effect.says`.
        source: where the rule is stated or measured, public.
        evidence: how it is known to hold.
        sets: what it can set, for the documentation.
    """

    id: str
    topic: Topic
    when: str
    applies: Callable[[Context], bool]
    then: Callable[[Context], Effect]
    because: str
    source: str
    evidence: Evidence
    sets: tuple[str, ...]

    def reason(self, effect: Effect) -> Reason:
        """The entry of the plan's `reasons`."""
        return Reason(
            rule=self.id,
            text=self.because.format(**effect.says),
            source=self.source,
            evidence=self.evidence,
            sets=effect.sets,
        )


@dataclass(frozen=True)
class ShapeRule:
    """A limit that an engine's shape must keep; the search drops shapes that break one.

    Attributes:
        id, when, source, evidence: as in `Rule`.
        broken: whether a shape breaks the limit.
        because: one sentence saying why the shape is refused.
    """

    id: str
    topic: Topic
    when: str
    broken: Callable[[EngineShape], bool]
    because: str
    source: str
    evidence: Evidence


@dataclass(frozen=True)
class LeftOut:
    """A rule that a source states and that is not in the table, with the reason."""

    rule: str
    source: str
    why: str


def always(_: Context) -> bool:
    """The condition of rules that hold for every engine."""
    return True


def sets_args(**values: Any) -> Callable[[Context], Effect]:
    """An effect of constant arguments, written with underscores for hyphens."""
    effect = Effect(args={name.replace("_", "-"): value for name, value in values.items()})
    return lambda _: effect


def sets_env(**values: str) -> Callable[[Context], Effect]:
    """An effect of constant variables."""
    effect = Effect(env=values)
    return lambda _: effect


def needs_patch(*ids: str) -> Callable[[Context], Effect]:
    """An effect of patches alone."""
    effect = Effect(patches=ids)
    return lambda _: effect

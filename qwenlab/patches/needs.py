"""Which patches a plan needs: the conditions of the series, asked of one engine's plan. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from qwenlab.patches.manifest import Condition, Series
from qwenlab.planner.catalogue import checkpoints
from qwenlab.planner.plan import EnginePlan, HostPlan


def needs(condition: Condition, patch_id: str, engine: EnginePlan, *, keyed: bool) -> bool:
    """Whether `engine` fulfils every part of `condition`."""
    method = engine.speculation.method if engine.speculation else "none"
    vision = not engine.args.get("language-model-only", False)
    named = {
        patch
        for spec in checkpoints().values()
        if (spec.repo, spec.format) == (engine.checkpoint.repo, engine.checkpoint.format)
        for patch in spec.patches
    }
    return all(
        (
            condition.pp_at_least is None or engine.pp >= condition.pp_at_least,
            condition.method is None or method in condition.method,
            condition.argument is None or condition.argument in engine.args,
            condition.vision is None or vision == condition.vision,
            condition.keyed is None or keyed == condition.keyed,
            not condition.checkpoint or patch_id in named,
            not condition.named or patch_id in engine.patches,
        )
    )


def needed(series: Series, engine: EnginePlan, *, keyed: bool) -> tuple[str, ...]:
    """Ids that one engine needs, in series order."""
    return tuple(patch.id for patch in series.patches if needs(patch.needed_when, patch.id, engine, keyed=keyed))


def chosen(series: Series, plan: HostPlan, *, keyed: bool) -> tuple[str, ...]:
    """Ids that the host's release carries: all that an engine's plan names or its conditions ask for, in series order.

    Raises:
        UnknownPatch: the plan names a patch that the series of its vLLM does not hold.
    """
    wanted: set[str] = set()
    for engine in plan.engines:
        wanted.update(engine.patches, needed(series, engine, keyed=keyed))
    return ordered(series, wanted)


class UnknownPatch(ValueError):
    """A plan names a patch that the series does not hold: such a plan must not be deployed."""


def ordered(series: Series, wanted: Iterable[str]) -> tuple[str, ...]:
    """`wanted` in series order. Raises UnknownPatch; ValueError for two patches that exclude each other."""
    names = set(wanted)
    unknown = sorted(names - set(series.ids))
    if unknown:
        raise UnknownPatch(
            f"the plan needs {', '.join(unknown)}, and the series for vLLM {series.vllm} has no such patch; "
            "choose a layout without it or another qwen_vllm_version"
        )
    for name in names:
        clash = sorted(names.intersection(series.patch(name).conflicts))
        if clash:
            raise ValueError(f"{name} cannot be applied together with {', '.join(clash)}")
    return tuple(name for name in series.ids if name in names)

"""Checkpoints that a plan names by their branch: which these are, and the plan with the commits that they stood for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from qwenlab.planner.plan import Checkpoint, EnginePlan, HostPlan

COMMIT_DIGITS = 40


def branch_directories(plan: HostPlan, models: str) -> tuple[str, ...]:
    """Where the checkpoints lie that the plan names by a branch, below the host's model directory."""
    named = [one for engine in plan.engines for one in (engine.checkpoint, engine.drafter) if one is not None]
    return tuple(dict.fromkeys(_base(one, models) for one in named if len(one.revision) != COMMIT_DIGITS))


def with_commits(plan: HostPlan, commits: Mapping[str, str], models: str) -> HostPlan:
    """The plan with each branch replaced by its commit, in the arguments for vLLM too.

    Args:
        commits: directory of a branch to the commit that it was resolved to; what is not in it stays.
        models: the host's model directory.
    """
    return plan.model_copy(update={"engines": tuple(_with_commits(one, commits, models) for one in plan.engines)})


def _with_commits(engine: EnginePlan, commits: Mapping[str, str], models: str) -> EnginePlan:
    places: dict[str, str] = {}

    def pin(one: Checkpoint | None) -> Checkpoint | None:
        if one is None or _base(one, models) not in commits:
            return one
        at_commit = one.model_copy(update={"revision": commits[_base(one, models)]})
        places[one.directory(models)] = at_commit.directory(models)
        return at_commit

    changes = {"checkpoint": pin(engine.checkpoint), "drafter": pin(engine.drafter)}
    return engine.model_copy(update={**changes, "args": _moved(engine.args, places)})


def _base(one: Checkpoint, models: str) -> str:
    """Where the repository's own files lie: what is prepared from them lies beside."""
    return one.model_copy(update={"preparation": None}).directory(models)


def _moved(value: Any, places: Mapping[str, str]) -> Any:
    """A value of vLLM's arguments with each directory of a branch replaced."""
    if isinstance(value, Mapping):
        return {name: _moved(inner, places) for name, inner in value.items()}
    return places.get(value, value) if isinstance(value, str) else value

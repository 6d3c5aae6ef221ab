"""The patch series as a step of the release's build: what the host's plan needs, and what its owner adds."""

from __future__ import annotations

import json
from pathlib import Path

from qwenlab.engine.release import BuildStep
from qwenlab.operations.planning import host_plan
from qwenlab.patches import applier
from qwenlab.patches.extra import ExtraSeriesError, read_series
from qwenlab.patches.job import make_job
from qwenlab.patches.manifest import SeriesError, load
from qwenlab.patches.needs import UnknownPatch, chosen
from qwenlab.planner.plan import HostPlan
from qwenlab.settings import Settings


class NoSeries(ValueError):
    """The plan cannot be deployed with the patches that there are; the text is for the host's owner."""


def with_series(settings: Settings, steps: tuple[BuildStep, ...]) -> tuple[tuple[BuildStep, ...], tuple[str, ...]]:
    """`steps` and the series' step for the current host's plan, asked at an operation's turn; reasons for a refusal."""
    try:
        return (*steps, *series_steps(settings, host_plan(settings))), ()
    except NoSeries as error:
        return steps, (str(error),)


def series_steps(settings: Settings, plan: HostPlan) -> tuple[BuildStep, ...]:
    """The build step that applies the series; none for a plan that needs no patch: its tree stays untouched.

    The release's id covers program and files of a step, so another choice of patches is another release.

    Raises:
        NoSeries: the plan names a patch that there is not, or a series is damaged or not the one that was pinned.
    """
    vllm = settings.release.vllm
    try:
        ids = chosen(load(vllm), plan, keyed=settings.has_key)
        extra = [patch for series in settings.extra_patches for patch in read_series(series)]
        if not ids and not extra:
            return ()
        job = make_job(vllm, ids, extra)
    except (SeriesError, UnknownPatch, ExtraSeriesError, ValueError) as error:
        raise NoSeries(str(error)) from None
    step = BuildStep(
        name="patches",
        purpose=f"apply the patch series ({', '.join(entry['id'] for entry in (*job['patches'], *job['extra']))})",
        program=Path(applier.__file__).read_text(),
        files={"job.json": json.dumps(job, indent=1)},
        arguments=("apply", "job.json"),
    )
    return (step,)

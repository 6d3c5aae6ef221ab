"""The series as a step of a release's build."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qwenlab.engine.release import PythonChoice, release_id
from qwenlab.operations.patch import NoSeries, series_steps
from qwenlab.planner.plan import HostPlan, Speculation
from qwenlab.settings import Settings, load
from tests.patches.test_checking import EDIT
from tests.patches.test_extra_series import folder_sha, theirs
from tests.patches.test_series import engine, host_plan

__all__ = ["theirs"]  # the fixture

PYTHON = PythonChoice("3.12", "python3.12")


def settings(**changes: Any) -> Settings:
    """Settings without an API key, but for `changes`."""
    return load({f"qwen_{name}": value for name, value in {"generate_api_key": False, **changes}.items()})


def plan(**changes: Any) -> HostPlan:
    return host_plan("0.33.0", engine(**changes))


PIPELINE = plan(pp=2, speculation=Speculation(method="dflash", tokens=7))


def test_a_plan_that_needs_none_builds_an_untouched_tree() -> None:
    assert series_steps(settings(), plan()) == ()


def test_a_plan_that_needs_some_builds_with_them_and_no_other() -> None:
    (step,) = series_steps(settings(), PIPELINE)
    job = json.loads(step.files["job.json"])
    names = [entry["id"] for entry in job["patches"]]
    assert names[0] == "aux-hidden-states-over-pp"
    assert "mtp-shared-embedding-pp" not in names
    assert all(name in step.purpose for name in names)
    assert step.arguments == ("apply", "job.json")
    compile(step.program, "program.py", "exec")


def test_the_release_s_id_covers_the_choice() -> None:
    ids = {
        release_id(settings(), PYTHON, series_steps(settings(), one))
        for one in (plan(), PIPELINE, plan(patches=("auth-deny-default",)))
    }
    assert len(ids) == 3


@pytest.mark.parametrize("key", [{"api_key": "k" * 32}, {"generate_api_key": True}])
def test_a_key_closes_the_other_routes(key: dict[str, Any]) -> None:
    (step,) = series_steps(settings(**key), plan())
    assert [entry["id"] for entry in json.loads(step.files["job.json"])["patches"]] == ["auth-deny-default"]


def test_a_plan_with_a_patch_that_there_is_not_is_refused() -> None:
    with pytest.raises(NoSeries, match="the plan needs no-such-patch, and the series"):
        series_steps(settings(), plan(patches=("no-such-patch",)))


def test_another_series_comes_after_ours(theirs: Path) -> None:
    extra = [{"source": str(theirs), "sha256": folder_sha(theirs)}]
    (step,) = series_steps(settings(extra_patches=extra), PIPELINE)
    job = json.loads(step.files["job.json"])
    assert job["extra"] == [{"id": "theirs/kv/one.patch", "diff": EDIT}]
    assert series_steps(settings(extra_patches=extra), plan())[0].purpose.endswith("(theirs/kv/one.patch)")


def test_another_series_with_another_digest_is_refused(theirs: Path) -> None:
    extra = [{"source": str(theirs), "sha256": "0" * 64}]
    with pytest.raises(NoSeries, match="SHA-256"):
        series_steps(settings(extra_patches=extra), plan())

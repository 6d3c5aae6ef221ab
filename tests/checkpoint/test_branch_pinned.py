"""A checkpoint that the catalogue names by its branch alone: one commit on a host, from the first deploy on."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from qwenlab.operations import planning, service
from qwenlab.planner.plan import HostPlan
from qwenlab.planner.render import UNPINNED
from qwenlab.render import PLAN, render
from qwenlab.settings import load
from tests.operations.fake import commands
from tests.operations.test_operations import state
from tests.planner.choosing import INVENTORIES

COMMIT = "c" * 40
REPO = "born2bewild/Qwen3.8-27B-W4A16-AutoRound-fast"
PLACE = f"/srv/qwen/models/{REPO}"
SETTINGS = load({"qwen_checkpoint": "int4-fast", "qwen_generate_api_key": False})


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """A host with one card, whose first fetch left the link from the branch to the commit that it stood for."""
    for module in (planning, service):
        monkeypatch.setattr(module, "host_inventory", lambda _settings: INVENTORIES["1x5090"])
    link = {f"for path in {PLACE}/{UNPINNED}": [f"branch={COMMIT} {PLACE}/{UNPINNED}"]}
    return {**link, **state("current=")}


def deployed(answers: dict[str, list[str]]) -> dict[str, str]:
    """What `service.configure` writes: file to content."""
    written = commands(service.configure, answers, settings=SETTINGS)
    return {command.split(" && mv -f ")[-1].split()[-1]: text for command, text in written if " && mv -f " in command}


def test_plan_engine_and_gate_on_the_host_name_the_commit(answers: dict[str, list[str]]) -> None:
    files = deployed(answers)
    plan = HostPlan.model_validate_json(files[PLAN])
    assert [engine.checkpoint.revision for engine in plan.engines] == [COMMIT]
    (engine,) = plan.engines
    assert f"model: {PLACE}/{COMMIT}" in files[f"/etc/qwen/engines/{engine.name}.yaml"]
    assert f"{PLACE}/{COMMIT}" in json.loads(files[f"/etc/qwen/engines/{engine.name}.gate.json"])["checkpoints"]


def test_a_second_deploy_changes_nothing_wherever_the_branch_stands_by_then(answers: dict[str, list[str]]) -> None:
    """The link alone is asked, and the hub is not."""
    plan = HostPlan.model_validate_json(deployed(answers)[PLAN])
    there = [
        f"path=file {file.mode} {file.user} {file.group} {sha256(file.content.encode()).hexdigest()} {path}"
        for path, file in render(plan, SETTINGS).items()
    ]
    assert deployed({"sha256sum": there, **answers}) == {}

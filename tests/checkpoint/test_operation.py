"""What a deploy would run on a host for its checkpoints, command by command."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from qwenlab.facts.checkpoints import ResolvedBranches
from qwenlab.host_inventory import HostInventory
from qwenlab.operations import checkpoint, planning
from qwenlab.operations.checkpoint_job import job_of
from qwenlab.operations.checkpoint_lab import Lab, Served
from qwenlab.operations.checkpoint_progress import Report, parse_report, poll_command
from qwenlab.operations.checkpoint_units import start_fetch
from qwenlab.operations.progress import Rate, Reading, amount, line, remaining
from qwenlab.planner.cpu import plan_cpu
from qwenlab.planner.plan import Checkpoint, HostPlan
from qwenlab.programs import FETCHING, directories, modules
from qwenlab.remote.checkpoint.job import Job
from qwenlab.settings import Settings, SettingsError, load
from tests.operations.fake import commands

REVISION = "0123456789abcdef0123456789abcdef01234567"
DIRECTORY = f"/srv/qwen/models/lab/tiny/{REVISION}"
PYTHON = "/opt/python"


def settings(**more: Any) -> Settings:
    """Settings of a cpu host."""
    given = {"engine": "cpu", "cpu_checkpoint": "lab/tiny", "cpu_revision": REVISION, **more}
    return load({f"qwen_{key}": value for key, value in given.items()})


def state(**directories: Any) -> dict[str, list[str]]:
    """Answer to the question which checkpoints are whole."""
    return {"checkpoint.verify": [json.dumps({DIRECTORY: directories})]}


def test_the_job_with_the_token_goes_on_stdin_into_a_file_of_the_service_user() -> None:
    command = start_fetch(settings(), PYTHON, "qwen-fetch-1", {"repo": "lab/tiny", "token": "hf_secret"})
    text = command.get_raw_value()
    assert "hf_secret" not in text
    assert "hf_secret" in command.connector_arguments["_stdin"]
    assert "install -d -m 755 -o qwen /run/qwen-fetch" in text
    assert "chown qwen /run/qwen-fetch/qwen-fetch-1.job.$$" in text
    assert "systemd-run --quiet --collect --unit=qwen-fetch-1 --uid=qwen" in text


PROGRAMS_OF_A_HOST = {
    "install": "mkdir -p {root}/run/qwen-fetch",
    "chown": "true",
    "systemctl": '[ "$1" != is-active ] || [ -d {root}/active ]',
    "systemd-run": "mkdir {root}/active && echo taken >> {root}/$(cat {root}/run/qwen-fetch/qwen-fetch-1.job)",
}


def test_of_many_deploys_that_start_a_fetch_at_once_one_does_and_none_takes_its_job_away(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name, text in PROGRAMS_OF_A_HOST.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{text.format(root=tmp_path)}\n")
        program.chmod(0o755)
    command = start_fetch(settings(), PYTHON, "qwen-fetch-1", {}).get_raw_value()
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for number in range(24):
        (tmp_path / f"stdin{number}").write_text(f"job{number}")
    deploys = [
        subprocess.Popen(
            ["sh", "-c", command.replace("/run/", f"{tmp_path}/run/")],
            env=environment,
            stdin=path.open(),
            stderr=subprocess.PIPE,
            text=True,
        )
        for path in tmp_path.glob("stdin*")
    ]
    said = [one.communicate()[1] for one in deploys]
    assert [one.returncode for one in deploys] == [0] * 24, said
    assert [path.read_text() for path in tmp_path.glob("job*")] == ["taken\n"]
    assert [path.name for path in (tmp_path / "run/qwen-fetch").iterdir()] == ["qwen-fetch-1.job"]


def test_a_whole_checkpoint_is_left_alone() -> None:
    answers = state(whole=True, wrong=[], manifest={})
    assert commands(checkpoint.fetch, answers, settings=settings(), token=None, python=PYTHON) == []


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, {"source": "hub", "endpoint": "https://huggingface.co", "prepare": None, "fetcher": "auto"}),
        ({"model_source": "path", "model_path": "/mnt/usb"}, {"source": "path", "place": "/mnt/usb"}),
        ({"verify_models": "digest"}, {"verify": "digest"}),
        ({"fetcher": "ranges"}, {"fetcher": "ranges"}),
    ],
)
def test_the_job_says_where_from_and_how_to_verify(more: dict[str, Any], wanted: dict[str, Any]) -> None:
    one = Checkpoint(repo="lab/tiny", revision=REVISION, format="bf16")
    job = Job(**job_of(one, settings(**more), "hf_secret"))
    assert {key: getattr(job, key) for key in wanted} == wanted
    assert job.directory == DIRECTORY
    assert "hf_secret" not in repr(job)


def test_a_prepared_checkpoint_is_fetched_as_it_is_and_prepared_beside_it() -> None:
    one = Checkpoint(repo="a/b", revision=REVISION, format="int4-autoround-prepared", preparation="int8-heads")
    job = job_of(one, settings(), None)
    assert job["directory"] == f"/srv/qwen/models/a/b/{REVISION}"
    assert job["prepare"] == {"directory": f"/srv/qwen/models/a/b/{REVISION}.int8-heads", "recipe": "int8-heads"}


def test_every_module_that_runs_on_the_host_is_put_there() -> None:
    paths = modules(FETCHING)
    for module in ("remote/checkpoint/fetch.py", "remote/checkpoint/serve.py", "preparation/prepare.py", "__init__.py"):
        assert f"/usr/local/lib/qwen/qwenlab/{module}" in paths
    assert not any("pyinfra" in file.content or "pydantic" in file.content for file in paths.values())
    parents = {path.rpartition("/")[0] for path in paths}
    assert parents == set(directories(FETCHING))


def test_the_one_that_has_it_serves_else_the_first_that_needs_it() -> None:
    lab = Lab()
    for name in ("c", "b", "a"):
        lab.claim(name, ("x/y/1",), frozenset(), ["10.0.0.1"])
    assert lab.source("x/y/1") == "a"
    assert sorted(lab.lacking("x/y/1")) == ["b", "c"]
    lab.claim("c", ("x/y/1",), frozenset({"x/y/1"}), ["10.0.0.3"])
    assert lab.source("x/y/1") == "c"
    assert sorted(lab.lacking("x/y/1")) == ["a", "b"]
    assert lab.source("nobody/needs/it") is None


def test_a_host_whose_peer_failed_is_told_whose_words_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab()
    for name in ("@fake/rack", "@fake/other"):
        lab.claim(name, (f"lab/tiny/{REVISION}",), frozenset(), ["10.0.0.1"])
    monkeypatch.setattr(checkpoint, "lab_of", lambda host: lab)
    given = {"settings": settings(model_source="peer"), "token": None, "python": PYTHON, "from_peers": True}
    ((kind, words),) = commands(checkpoint.fetch, state(whole=False, wrong=[], manifest=None), **given)
    assert kind == "refused"
    assert "lab/tiny was to come from @fake/other, which failed in this run" in words


@pytest.mark.parametrize(
    ("whole", "from_peers", "fetches"),
    [
        ((), False, False),
        ((), True, True),  # the other host fetches it for both
        (("base",), False, True),  # only prepared here, whoever serves the base to others
        (("base",), True, False),
        (("base", "prepared"), False, False),
    ],
)
def test_a_host_prepares_what_it_has_and_takes_from_its_peer_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, whole: tuple[str, ...], from_peers: bool, fetches: bool
) -> None:
    one = Checkpoint(repo="lab/tiny", revision=REVISION, format="bf16", preparation="int8-heads")
    places = {"base": f"lab/tiny/{REVISION}", "prepared": f"lab/tiny/{REVISION}.int8-heads"}
    lab = Lab()
    lab.claim("@fake/other", (places["base"],), frozenset({places["base"]}), ["10.0.0.2"])
    lab.claim("@fake/rack", (places["base"],), frozenset(places[key] for key in whole), ["10.0.0.1"])
    lab.served[places["base"]] = Served("@fake/other", "http://10.0.0.2:8719", {"files": []})
    monkeypatch.setattr(checkpoint, "lab_of", lambda host: lab)
    monkeypatch.setattr(checkpoint, "checkpoints_of", lambda plan: [one])
    given = {"settings": settings(model_source="peer"), "token": None, "python": PYTHON, "from_peers": from_peers}
    found = [json.loads(text) for _, text in commands(checkpoint.fetch, {}, **given) if text[:1] == "{"]
    assert [job["source"] for job in found] == (["peer" if from_peers else "hub"] if fetches else [])


def test_a_path_source_needs_a_path() -> None:
    with pytest.raises(SettingsError, match="qwen_model_path"):
        settings(model_source="path")


@pytest.mark.parametrize(
    ("lines", "report"),
    [
        ([], Report(False)),
        (["inactive"], Report(False)),
        (["active"], Report(True)),
        (["active", '{"half'], Report(True)),
        (
            ["active", '{"state":"running","phase":"fetching","message":"","done":5,"total":10,"deploy":"x"}'],
            Report(True, "running", Reading("fetching", "", 5, 10), "x"),
        ),
    ],
)
def test_what_a_poll_says(lines: list[str], report: Report) -> None:
    assert parse_report(lines) == report


STATUS = {"phase": "", "message": "", "done": 0, "total": 0, "deploy": ""}


def test_a_fetch_that_ends_while_it_is_asked_after_is_not_taken_for_a_killed_one(tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    status.write_text(json.dumps({**STATUS, "state": "running"}))
    ended = json.dumps({**STATUS, "state": "done", "message": "whole"})
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho '{ended}' > {status}\necho inactive\nexit 3\n")
    systemctl.chmod(0o755)
    command = poll_command("qwen-fetch-1", str(status)).get_raw_value().replace("/run/", f"{tmp_path}/")
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    polled = subprocess.run(["sh", "-c", command], env=environment, text=True, capture_output=True, check=True)
    assert parse_report(polled.stdout.splitlines()) == Report(False, "done", Reading(message="whole"))


def test_a_line_tells_bytes_rate_and_time() -> None:
    reading = Reading("fetching", "", 5_000_000_000, 20_000_000_000)
    assert line("a/b", reading, 100e6) == "a/b: fetching, 5.0 GB of 20.0 GB (25 %), 100.0 MB/s, 2 min left"
    assert line("a/b", Reading("listing", "x"), 0) == "a/b: listing x"
    assert [amount(12), amount(2500), amount(3e6)] == ["12 B", "2.5 kB", "3.0 MB"]
    assert [remaining(5), remaining(600), remaining(9000)] == ["5 s", "10 min", "2.5 h"]


def test_the_rate_counts_what_came_since_the_first_look() -> None:
    rate = Rate()
    assert rate.update(0.0, 1_000_000) == 0
    assert rate.update(1.0, 2_000_000) == 1_000_000
    assert 1_000_000 < rate.update(2.0, 5_000_000) < 3_000_000


def test_a_branch_is_pinned_in_the_plan_to_what_it_was_resolved_to_here() -> None:
    """The directory of the branch is a link that the first fetch left; nobody asks the hub again."""
    one = Checkpoint(repo="lab/tiny", revision="main", format="bf16")
    commit = "c" * 40
    fact = ResolvedBranches()
    directory = "/srv/qwen/models/lab/tiny/main"
    assert f"for path in {directory};" in fact.command((directory,))
    assert fact.process([f"branch={commit} {directory}"]) == {directory: commit}
    plan = cpu_plan()
    branch = plan.model_copy(
        update={"engines": (plan.engines[0].model_copy(update={"checkpoint": one, "drafter": one}),)}
    )

    class Host:
        def get_fact(self, kind: type[ResolvedBranches], directories: tuple[str, ...]) -> dict[str, str]:
            assert directories == (directory,)
            return {directory: commit}

    with mock.patch.object(planning, "host", Host()):
        made = planning.pinned(branch, settings()).engines[0]
        assert planning.pinned(plan, settings()) is plan
    assert made.checkpoint.revision == commit
    assert made.drafter is not None
    assert made.drafter.revision == commit


def cpu_plan() -> HostPlan:
    """A plan whose checkpoint is named by its commit."""
    return plan_cpu(HostInventory(hostname="rack", cpu_count=2, ram_total_gib=8.0), settings())

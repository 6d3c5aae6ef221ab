"""What monitoring's operations would run on a host in a given state."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from qwenlab.facts.monitoring import Prometheus, TargetJobs
from qwenlab.facts.own_service import OwnService
from qwenlab.monitoring.files import (
    CARDS_UNIT_FILE,
    CONFIG,
    FOLDER,
    NODE_DROP_IN,
    TARGETS,
    UNIT_FILE,
    card_files,
    config,
    node_files,
    watcher_files,
)
from qwenlab.monitoring.targets import KEYS
from qwenlab.operations import monitoring
from tests.monitoring.test_files import PLAIN, settings
from tests.operations.fake import commands

RUNS = ["prometheus=yes active enabled no", "started=u u", "loaded=f f"]
STATE, STATES, UNITS, JOBS = "/run/qwen-prometheus/$1", "sha256sum <", "systemctl is-enabled", "for file in *.json"
INSTALLED = {"dpkg -l": ["ii  prometheus-node-exporter  1.5 amd64 x"]}
BARE = {"dpkg -l": ["ii  gcc  4:12 amd64 x"]}
SCRAPED = {"scraped_from": ["10.0.0.9"]}


def lines(operation: Any, answers: dict[str, Any], **arguments: Any) -> list[str]:
    """Commands without their stdin."""
    return [line for line, _ in commands(operation, answers, **arguments)]


def lying(files: dict[str, Any]) -> list[str]:
    """Answer to the question for files that are as wanted, in folders that are there."""
    found = [
        f"path=file {file.mode} {file.user} {file.group} {sha256(file.content.encode()).hexdigest()} {path}"
        for path, file in files.items()
    ]
    folders = dict.fromkeys(path.rsplit("/", 1)[0] for path in files)
    return [*found, *(f"path=directory 755 root root - {folder}" for folder in folders)]


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (RUNS, OwnService(True, True, True, restart=False, reload=False)),
        ([RUNS[0], RUNS[1], "loaded=f g"], OwnService(True, True, True, False, True)),
        ([RUNS[0], "started=u v", RUNS[2]], OwnService(True, True, True, True, False)),
        (["prometheus=yes failed disabled no", "started=none u", "loaded=none f"], OwnService(True)),
        (["prometheus=no inactive unknown unknown", "started=none e", "loaded=none e"], OwnService()),
    ],
)
def test_what_a_host_says_of_its_prometheus(said: list[str], state: OwnService) -> None:
    assert Prometheus().process(["Welcome!", *said]) == state


def test_jobs_that_cannot_be_read_count_as_none() -> None:
    said = ['target=rack1 [{"job_name": "a"}]', 'target=rack2 [{"job_na', "motd"]
    assert TargetJobs().process(said) == {"rack1": [{"job_name": "a"}]}


def test_the_exporter_comes_after_who_may_ask_it_was_written() -> None:
    found = lines(monitoring.node, BARE, settings=settings(engine_env={}, **SCRAPED))
    place = {part: next(n for n, line in enumerate(found) if part in line) for part in (NODE_DROP_IN, "install --yes")}
    assert place[NODE_DROP_IN] < place["install --yes"]
    assert any(CARDS_UNIT_FILE in line for line in found)


def test_an_exporter_of_the_hosts_own_stays_as_it_is() -> None:
    found = lines(monitoring.node, {**INSTALLED, UNITS: "enabled active"}, settings=settings(**SCRAPED))
    assert not any("node-exporter" in line for line in found)


def test_what_lies_there_and_runs_is_left() -> None:
    chosen = settings(**SCRAPED)
    answers = {**INSTALLED, UNITS: "enabled active", STATES: lying({**node_files(chosen), **card_files(chosen)})}
    assert lines(monitoring.node, answers, settings=chosen) == []


def test_turned_off_the_exporter_goes_and_leaves_nothing_of_ours() -> None:
    chosen = settings(**SCRAPED)
    answers = {**INSTALLED, STATES: lying({**node_files(chosen), **card_files(chosen)})}
    found = lines(monitoring.node, answers, settings=settings())
    assert [path in " ".join(found) for path in (NODE_DROP_IN, CARDS_UNIT_FILE)] == [True, True]
    assert sum("disable --quiet --now" in line for line in found) == 2


def test_the_configuration_is_checked_before_it_gets_its_name() -> None:
    found = lines(monitoring.watch, {}, settings=settings())
    (line,) = (line for line in found if "promtool" in line)
    assert line.index(f"promtool check config {CONFIG}.new") < line.index(f"mv -f {CONFIG}.new {CONFIG}")
    assert any("systemctl restart qwen-prometheus.service" in line for line in found)


def test_keys_lie_where_prometheus_alone_looks() -> None:
    assert f"install -d -o prometheus -g prometheus -m 700 {KEYS}" in lines(monitoring.watch, {}, settings=settings())


def watching(kept: str) -> dict[str, Any]:
    """Answers of a host that watches `kept`."""
    jobs = [{**job, "job_name": f"qwen {kept}"} for job in PLAIN.jobs("watch1")]
    chosen = settings()
    files = {**watcher_files(chosen), CONFIG: config(chosen, {kept: jobs})}
    states = [*lying(files), f"path=directory 700 prometheus prometheus - {KEYS}"]
    states += [f"path=directory 755 root root - {folder}" for folder in (TARGETS, f"{FOLDER}/tls")]
    return {STATE: RUNS, JOBS: f"target={kept} {json.dumps(jobs)}", STATES: states}


def test_a_host_that_the_run_left_out_is_watched_on() -> None:
    # the host of these tests is called @fake/rack
    answers = watching("_fake_rack")
    assert lines(monitoring.watch, answers, settings=settings()) == []


def test_a_host_that_left_the_inventory_is_forgotten_with_its_key() -> None:
    answers = watching("gone")
    removal, change = lines(monitoring.watch, answers, settings=settings())
    assert removal == f"rm -f {TARGETS}/gone.json {KEYS}/gone {FOLDER}/tls/gone.pem"
    assert CONFIG in change


def test_turned_off_it_goes_and_the_figures_stay() -> None:
    answers = {
        STATES: [*lying({UNIT_FILE: watcher_files(settings())[UNIT_FILE]}), f"path=directory 755 root root - {FOLDER}"]
    }
    found = " ".join(lines(monitoring.watch, answers, settings=settings(prometheus=False)))
    assert UNIT_FILE in found
    assert f"rm -rf {FOLDER}" in found
    assert "/var/lib" not in found


def test_a_host_that_never_watched_is_not_touched() -> None:
    assert lines(monitoring.watch, {}, settings=settings(prometheus=False)) == []
    assert lines(monitoring.install, {}, settings=settings(prometheus=False)) == []
    assert lines(monitoring.node, BARE, settings=settings()) == []


def test_a_host_that_may_fetch_nothing_goes_without_an_exporter_and_has_no_prometheus() -> None:
    assert lines(monitoring.node, BARE, settings=settings(offline="/srv/bundle", **SCRAPED)) == []
    ((kind, reason),) = commands(monitoring.install, BARE, settings=settings(offline="/srv/bundle"))
    assert (kind, "install the package" in reason) == ("refused", True)


def test_the_packages_own_instance_is_not_started() -> None:
    found = lines(monitoring.install, BARE, settings=settings())
    order = [
        next(place for place, line in enumerate(found) if part in line)
        for part in ("systemctl mask --quiet prometheus", "install --yes", "systemctl disable --quiet prometheus")
    ]
    assert order == sorted(order)

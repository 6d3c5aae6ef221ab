"""Prometheus on a host of its own watches a real engine behind a gateway, deployed as a person does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from qwenlab.monitoring.alerts import alerts
from qwenlab.monitoring.dashboard import PANELS
from qwenlab.monitoring.files import FOLDER, NODE_DROP_IN, UNIT, UNIT_FILE
from qwenlab.monitoring.targets import KEYS
from qwenlab.settings import load
from tests import lab
from tests.lab.deploying import API_KEY, Run, Sources, deploy, inventory, sources

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

# figures of what this host has not: cards, a drafter, a file system of its own (its root is an overlay)
ABSENT = ("qwen_card", "vllm:spec_decode", "node_filesystem")


@dataclass
class Watched:
    """A host that serves and one that watches it."""

    rack: lab.Host
    watch: lab.Host
    sources: Sources
    directory: Path

    def deploy(self, *, only: str | None = None, watching: bool = True) -> Run:
        """Both, or one of them as with `--limit`."""
        rack = self.sources.settings(
            qwen_gateway=True, qwen_gateway_lab_ca=str(self.directory / "ca"), qwen_scraped_from=[self.watch.address]
        )
        watch = {"qwen_prometheus": watching, "qwen_serve": False}
        data = {
            self.rack.name: {**self.rack.pyinfra_data("admin"), **rack},
            self.watch.name: {**self.watch.pyinfra_data("admin"), **watch},
        }
        file = inventory(self.directory, data)
        return deploy(file, limit=only)

    def query(self, text: str) -> list[dict[str, Any]]:
        """What Prometheus says to a query."""
        url = f"http://127.0.0.1:9090/api/v1/query?query={quote(text)}"
        said = self.watch.ssh_run(
            f"python3 -c \"import urllib.request as u; print(u.urlopen('{url}').read().decode())\"", timeout=60
        )
        found: list[dict[str, Any]] = json.loads(said.stdout)["data"]["result"]
        return found

    def wait_for(self, text: str) -> None:
        """Until a query has a result."""
        url = f"http://127.0.0.1:9090/api/v1/query?query={quote(text)}"
        self.watch.ssh_run(
            'timeout 180 python3 -c "\nimport time, urllib.request as u\n'
            f"while b'metric' not in u.urlopen('{url}').read(): time.sleep(1)\n\"",
            timeout=200,
        )


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Deployed."""
    directory = tmp_path_factory.mktemp("monitoring")
    specs = [lab.HostSpec(name="rack1", release="bookworm"), lab.HostSpec(name="watch1", release="bookworm")]
    with lab.hosts(specs) as hosts, sources(hosts.gateway, directory) as origin:
        rack, watch = hosts
        made = Watched(rack, watch, origin, directory)
        run = made.deploy()
        assert run.code == 0, run.text
        yield made


def test_engine_gateway_and_host_are_watched(watched: Watched) -> None:
    for job in ("qwen", "qwen-gateway", "qwen-node"):
        watched.wait_for(f'up{{job="{job}", host="rack1"}} == 1')
    (engine,) = watched.query('up{job="qwen"}')
    assert (engine["metric"]["unit"], engine["value"][1]) == ("cpu", "1")
    watched.wait_for('haproxy_server_status{proxy="engines", server="cpu", state="UP"} == 1')


def test_alerts_and_dashboard_ask_for_figures_that_there_are(watched: Watched) -> None:
    watched.wait_for('vllm:generation_tokens_total{job="qwen"} > 0')
    texts = [query for panel in PANELS for query in panel.queries.values()] + [one.when for one in alerts(load({}))]
    names = {name for text in texts for name in re.findall(r"\b(?:vllm:|node_|haproxy_|qwen_card)\w+", text)}
    assert len(names) > 20
    known = {name for name in names if watched.query(f"{{__name__='{name}', host='rack1'}}")}
    assert {name for name in names - known if not name.startswith(ABSENT)} == set()


def test_nothing_alarms(watched: Watched) -> None:
    assert watched.query('ALERTS{alertstate="firing"}') == []


def test_the_key_is_prometheus_alone_and_the_page_is_loopbacks(watched: Watched) -> None:
    host = watched.watch
    assert host.ssh_run(f"stat -c '%a %U' {KEYS} {KEYS}/rack1").stdout.split() == [
        *("700", "prometheus"),
        *("600", "prometheus"),
    ]
    readable = host.ssh_run(f"grep -rlF {API_KEY} /etc /run /var/log /tmp /usr/local", check=False).stdout.split()
    assert readable == [f"{KEYS}/rack1"]
    assert API_KEY not in host.ssh_run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    listening = host.ssh_run("ss -Hltn 'sport = :9090'").stdout.split()
    assert listening[3] == "127.0.0.1:9090"
    said = host.ssh_run(f"systemd-analyze security --no-pager --threshold=20 {UNIT}").stdout
    assert " OK " in said.splitlines()[-1]


def test_a_second_run_changes_nothing(watched: Watched) -> None:
    again = watched.deploy()
    assert (again.code, again.changed) == (0, ()), again.text


def test_a_run_without_the_watched_host_keeps_what_is_known_of_it(watched: Watched) -> None:
    run = watched.deploy(only="watch1")
    assert (run.code, run.changed) == (0, ()), run.text
    assert watched.query('up{job="qwen", host="rack1"} == 1')


def test_an_engine_that_is_down_is_told(watched: Watched) -> None:
    watched.rack.ssh_run("systemctl stop qwen qwen-engine@cpu")
    watched.wait_for('ALERTS{alertname="QwenEngineDown", host="rack1", unit="cpu"}')


def test_turned_off_it_is_gone(watched: Watched) -> None:
    run = watched.deploy(only="watch1", watching=False)
    assert run.code == 0, run.text
    left = watched.watch.ssh_run(f"ls -d {FOLDER} {UNIT_FILE}; systemctl is-active {UNIT}", check=False)
    assert left.stdout.split() == ["inactive"]
    assert NODE_DROP_IN in watched.rack.ssh_run(f"ls {NODE_DROP_IN}").stdout

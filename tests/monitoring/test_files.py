"""What Prometheus asks, whom it may ask, and what lies on its host."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from qwenlab.monitoring.alerts import alerts
from qwenlab.monitoring.dashboard import PANELS, dashboard
from qwenlab.monitoring.files import (
    CARDS_UNIT_FILE,
    GRAFANA,
    NODE_DROP_IN,
    RULES,
    UNIT_FILE,
    card_files,
    config,
    grafana_files,
    key_file,
    node_files,
    target_files,
    watcher_files,
)
from qwenlab.monitoring.targets import Target
from qwenlab.settings import Settings, SettingsError, load

GOLDEN = Path(__file__).with_name("golden")


def settings(**more: Any) -> Settings:
    """Settings of a host that runs Prometheus."""
    return load({f"qwen_{key}": value for key, value in {"prometheus": True, "serve": False, **more}.items()})


PLAIN = Target("rack1", "10.0.0.11", {"engine1": 8000, "engine2": 8001}, key="KEY", node=True)
TLS = Target(
    "rack2", "10.0.0.12", {"engine1": 8000}, gateway=8443, server_name="rack2.lab", key="KEY", authority="PEM\n"
)
LOOPBACK = Target("rack3", "10.0.0.13", {"engine1": 8000}, reachable=False, keyed=False)
EVERYONE = {"plain": PLAIN, "tls": TLS, "loopback": LOOPBACK}


def whole(*targets: Target, watcher: str = "watch1", **more: Any) -> str:
    """prometheus.yml."""
    return config(settings(**more), {one.file: one.jobs(watcher) for one in targets}).content


@pytest.mark.parametrize(
    ("name", "watcher", "more"),
    [
        ("watch1", "watch1", {"alertmanagers": ["watch1:9093"]}),
        ("rack1", "rack1", {}),
        ("rack3", "rack3", {"prometheus_bind": "::", "prometheus_port": 9091}),
    ],
)
def test_the_configuration_is_as_it_was_reviewed(name: str, watcher: str, more: dict[str, Any]) -> None:
    """After a change that is meant: write what the assertion shows into tests/monitoring/golden/."""
    assert whole(*EVERYONE.values(), watcher=watcher, **more) == (GOLDEN / f"{name}.yml").read_text()


def test_no_key_is_in_a_file_that_others_may_read() -> None:
    files = {**target_files(PLAIN, "watch1"), **watcher_files(settings()), "config": config(settings(), {})}
    assert not any("KEY" in file.content for file in files.values())
    assert "KEY" not in repr(PLAIN)
    ((path, file),) = key_file(PLAIN).items()
    assert (path, file.content) == ("/etc/qwen-monitoring/keys/rack1", "KEY\n")
    assert (file.mode, file.user) == ("600", "prometheus")


def test_a_host_that_cannot_be_asked_has_no_job_but_its_own_prometheus_asks_it() -> None:
    assert LOOPBACK.jobs("watch1") == []
    (job,) = LOOPBACK.jobs("rack3")
    assert job["static_configs"][0]["targets"] == ["127.0.0.1:8000"]


def test_a_host_name_cannot_leave_the_folder() -> None:
    assert Target("@ssh/../../rack9", "a", {}).file == "_ssh_.._.._rack9"


def test_who_may_ask_the_node_exporter() -> None:
    chosen = settings(scraped_from=["10.0.0.9", "10.1.0.0/16"])
    text = node_files(chosen)[NODE_DROP_IN].content
    assert re.findall(r"IPAddress\w+=.*", text) == [
        "IPAddressDeny=any",
        "IPAddressAllow=localhost",
        "IPAddressAllow=10.0.0.9",
        "IPAddressAllow=10.1.0.0/16",
    ]
    assert CARDS_UNIT_FILE in card_files(chosen)
    cpu = {"engine": "cpu", "cpu_checkpoint": "lab/tiny", "cpu_revision": "a" * 40}
    assert card_files(settings(scraped_from=["10.0.0.9"], **cpu)) == {}
    assert node_files(settings()) == card_files(settings()) == {}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scraped_from": ["10.0.0.1/8"]}, "'10.0.0.1/8' is neither an IP address nor a network"),
        ({"prometheus_bind": "everywhere"}, "'everywhere' is not an IP address"),
        ({"alertmanagers": ["watch1"]}, "'watch1' is no host:port"),
        ({"card_hot_c": 20}, "greater than or equal to 40"),
    ],
)
def test_wrong_settings_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        settings(**more)
    assert words in str(caught.value)


def test_the_units_limits_are_the_settings() -> None:
    unit = watcher_files(settings(prometheus_days=7, prometheus_max_gib=3))[UNIT_FILE].content
    assert "--storage.tsdb.retention.time=7d --storage.tsdb.retention.size=3GB" in unit
    assert "--web.listen-address=127.0.0.1:9090\n" in unit


def test_the_rules_are_the_table() -> None:
    rules = yaml.safe_load(watcher_files(settings(card_hot_c=70))[RULES].content)["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == [one.name for one in alerts(settings())]
    (hot,) = (rule for rule in rules if rule["alert"] == "QwenCardHot")
    assert hot["expr"] == "qwen_card_temperature_celsius >= 70"


def test_the_dashboard_has_a_graph_for_each_panel_and_no_two_overlap() -> None:
    made = json.loads(watcher_files(settings())[f"{GRAFANA}/dashboards/qwen.json"].content)
    assert made == dashboard()
    assert [panel["title"] for panel in made["panels"]] == [panel.title for panel in PANELS]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in made["panels"]}
    assert len(places) == len(made["panels"])
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in made["panels"])


def test_what_an_installed_grafana_reads_names_files_that_are_written() -> None:
    files = watcher_files(settings(prometheus_bind="0.0.0.0"))
    assert set(grafana_files().values()) <= files.keys()
    (source,) = yaml.safe_load(files[grafana_files()["/etc/grafana/provisioning/datasources/qwen.yaml"]].content)[
        "datasources"
    ]
    assert source["url"] == "http://127.0.0.1:9090"
    (provider,) = yaml.safe_load(files[grafana_files()["/etc/grafana/provisioning/dashboards/qwen.yaml"]].content)[
        "providers"
    ]
    assert f"{provider['options']['path']}/qwen.json" in files

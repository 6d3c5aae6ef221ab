"""Monitoring's files, from settings and targets alone: pure. API keys are not among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_address
from typing import Any

import yaml

from qwenlab.monitoring.alerts import rules
from qwenlab.monitoring.dashboard import dashboard
from qwenlab.monitoring.targets import CERTIFICATES, KEYS, Target
from qwenlab.programs import programs
from qwenlab.remote import LIBRARY
from qwenlab.render import UNITS, RemoteFile, template
from qwenlab.settings import Settings
from qwenlab.settings.monitoring import NODE_PORT

USER = "prometheus"  # of the distribution's package
FOLDER = "/etc/qwen-monitoring"
TARGETS = f"{FOLDER}/targets"
CONFIG = f"{FOLDER}/prometheus.yml"
RULES = f"{FOLDER}/rules.yml"
GRAFANA = f"{FOLDER}/grafana"
PROVISIONING = "/etc/grafana/provisioning"
UNIT = "qwen-prometheus.service"
UNIT_FILE = f"{UNITS}/{UNIT}"
DATA = "/var/lib/qwen-prometheus"
CARDS_UNIT = "qwen-card-metrics.service"
CARDS_UNIT_FILE = f"{UNITS}/{CARDS_UNIT}"
NODE_UNIT = "prometheus-node-exporter.service"
NODE_DROP_IN = f"{UNITS}/{NODE_UNIT}.d/qwen.conf"


def own_address(settings: Settings) -> str:
    """Address and port that Prometheus listens on."""
    address = settings.prometheus_bind
    return f"{f'[{address}]' if ip_address(address).version == 6 else address}:{settings.prometheus_port}"


def asked_at(settings: Settings) -> str:
    """Where programs of the same host ask Prometheus."""
    address = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.prometheus_bind, settings.prometheus_bind)
    return f"{f'[{address}]' if ':' in address else address}:{settings.prometheus_port}"


def watcher_files(settings: Settings) -> dict[str, RemoteFile]:
    """What does not depend on the watched hosts: alerts, dashboard, unit."""
    paths = {"config": CONFIG, "rules": RULES, "user": USER, "unit": UNIT_FILE, "data": DATA}
    unit = template("systemd/qwen-prometheus.service.j2", settings=settings, files=paths, address=own_address(settings))
    return {
        RULES: RemoteFile(_yaml(rules(settings))),
        f"{GRAFANA}/dashboards/qwen.json": RemoteFile(json.dumps(dashboard(), indent=1) + "\n"),
        f"{GRAFANA}/provisioning/dashboards/qwen.yaml": RemoteFile(_yaml(_dashboards())),
        f"{GRAFANA}/provisioning/datasources/qwen.yaml": RemoteFile(_yaml(_sources(settings))),
        UNIT_FILE: RemoteFile(unit),
    }


def grafana_files() -> dict[str, str]:
    """Where an installed Grafana looks, to the file of ours that belongs there."""
    names = ("dashboards/qwen.yaml", "datasources/qwen.yaml")
    return {f"{PROVISIONING}/{name}": f"{GRAFANA}/provisioning/{name}" for name in names}


def target_files(target: Target, watcher: str) -> dict[str, RemoteFile]:
    """What is kept of one host, apart from its key: its jobs, and the certificate to trust."""
    found = {f"{TARGETS}/{target.file}.json": RemoteFile(json.dumps(target.jobs(watcher), indent=1) + "\n")}
    if target.authority is not None:
        found[f"{CERTIFICATES}/{target.file}.pem"] = RemoteFile(target.authority)
    return found


def key_file(target: Target) -> dict[str, RemoteFile]:
    """The host's API key, for Prometheus alone."""
    if target.key is None:
        return {}
    return {f"{KEYS}/{target.file}": RemoteFile(f"{target.key}\n", "600", USER, USER)}


def config(settings: Settings, jobs: Mapping[str, list[dict[str, Any]]]) -> RemoteFile:
    """prometheus.yml.

    Args:
        jobs: file name of a host to its scrape jobs.
    """
    own = {"job_name": "prometheus", "static_configs": [{"targets": [asked_at(settings)]}]}
    made: dict[str, Any] = {
        "global": {"scrape_interval": "15s", "scrape_timeout": "10s", "evaluation_interval": "15s"},
        "rule_files": [RULES],
        "scrape_configs": [own, *(job for name in sorted(jobs) for job in jobs[name])],
    }
    if settings.alertmanagers:
        made["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": list(settings.alertmanagers)}]}]}
    return RemoteFile("# Made by qwenlab from inventory and settings; a deploy writes it anew.\n" + _yaml(made))


def node_files(settings: Settings) -> dict[str, RemoteFile]:
    """On a watched host: who may ask its node exporter."""
    if not settings.scraped_from:
        return {}
    return {NODE_DROP_IN: RemoteFile(template("monitoring/node-exporter.conf.j2", settings=settings, port=NODE_PORT))}


def card_files(settings: Settings) -> dict[str, RemoteFile]:
    """On a watched host with cards: the program that hands their figures to the node exporter."""
    if not settings.scraped_from or settings.engine != "cuda":
        return {}
    program = programs(settings)[f"{LIBRARY}/card_metrics.py"].content
    digest = sha256(program.encode()).hexdigest()[:12]
    return {CARDS_UNIT_FILE: RemoteFile(template("systemd/qwen-card-metrics.service.j2", user=USER, digest=digest))}


def _dashboards() -> dict[str, Any]:
    place = {"path": f"{GRAFANA}/dashboards"}
    return {"apiVersion": 1, "providers": [{"name": "qwen", "type": "file", "options": place}]}


def _sources(settings: Settings) -> dict[str, Any]:
    source = {"name": "Qwen", "type": "prometheus", "access": "proxy", "url": f"http://{asked_at(settings)}"}
    return {"apiVersion": 1, "datasources": [source]}


class _Plain(yaml.SafeDumper):
    """Without anchors: what two jobs share is written twice, for people."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_Plain, sort_keys=False, width=1000)

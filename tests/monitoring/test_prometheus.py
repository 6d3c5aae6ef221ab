"""The rendered configuration in the distribution's Prometheus: through a gateway with TLS and key, and past one."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qwenlab.monitoring.files import FOLDER, RULES, config, watcher_files
from qwenlab.monitoring.targets import Target
from tests.gateway.running import Running, gateway
from tests.gateway.stand_in import PATIENCE_S
from tests.lab.image import lower_directories
from tests.monitoring.test_files import settings
from tests.ports import free_port

pytestmark = pytest.mark.lab


@contextmanager
def prometheus(folder: Path, target: Target, watcher: str) -> Iterator[int]:
    """Prometheus that asks this host; its port."""
    program = lower_directories("bookworm", ("prometheus", "python3"))[0] / "usr/bin/prometheus"
    port = free_port()
    chosen = settings(prometheus_port=port)
    text = config(chosen, {target.file: target.jobs(watcher)}).content.replace(FOLDER, str(folder))
    # fifteen seconds between questions are the tests' one
    text = text.replace("scrape_interval: 15s\n  scrape_timeout: 10s", "scrape_interval: 1s\n  scrape_timeout: 1s")
    for name, content in {
        "prometheus.yml": text,
        "rules.yml": watcher_files(chosen)[RULES].content,
        f"keys/{target.file}": f"{target.key}\n",
        f"tls/{target.file}.pem": target.authority or "",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    process = subprocess.Popen(
        [
            *(str(program), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"),
        ]
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait()


def query(port: int, text: str) -> list[dict[str, Any]]:
    """What Prometheus says; nothing before it listens."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(text)}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=PATIENCE_S) as page:
            found: list[dict[str, Any]] = json.load(page)["data"]["result"]
            return found
    except OSError:
        return []


def until(port: int, text: str) -> list[dict[str, str]]:
    """Labels of the series that a query has, once it has any."""
    done = threading.Event()
    for _ in range(int(PATIENCE_S / 0.1)):
        if found := query(port, text):
            return [one["metric"] for one in found]
        done.wait(0.1)
    return pytest.fail(f"{text} has no result")


def target_of(running: Running, folder: Path) -> Target:
    """The host behind such a gateway, as a deploy would tell of it."""
    return Target(
        host="rack1",
        address="127.0.0.1",
        engines={name: one.port for name, one in running.engines.items()},
        gateway=running.port,
        key="topsecretkey",
        server_name="localhost",
        authority=(folder / "ca.crt").read_text(),
    )


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Of the gateway, and of Prometheus."""
    gate, own = tmp_path / "gateway", tmp_path / "prometheus"
    gate.mkdir()
    return gate, own


def test_engines_are_asked_through_the_gateway_with_tls_and_key(folders: tuple[Path, Path]) -> None:
    gate, own = folders
    with (
        gateway(gate, "a", "b", tls=True, scraped_from=["127.0.0.1"]) as running,
        prometheus(own, target_of(running, gate), "watch1") as port,
    ):
        for name, engine in running.engines.items():
            (labels,) = until(port, f'vllm:num_requests_running{{job="qwen", host="rack1", unit="{name}"}} == 3')
            assert labels["engine"] == name
            path, headers = engine.asked[0]
            assert (path, headers["authorization"]) == ("/metrics", "Bearer topsecretkey")
        until(port, 'haproxy_server_status{job="qwen-gateway", host="rack1", server="a", state="UP"} == 1')
        assert query(port, 'up{job="qwen"} == 0') == []


def test_on_its_own_host_prometheus_asks_the_engines_themselves(folders: tuple[Path, Path]) -> None:
    gate, own = folders
    with (
        gateway(gate, "a", tls=True) as running,
        prometheus(own, replace(target_of(running, gate), reachable=False), "rack1") as port,
    ):
        (labels,) = until(port, 'up{job="qwen", host="rack1"} == 1')
        assert labels["instance"] == f"127.0.0.1:{running.engines['a'].port}"


def test_another_name_than_the_certificates_is_not_trusted(folders: tuple[Path, Path]) -> None:
    gate, own = folders
    with (
        gateway(gate, "a", tls=True, scraped_from=["127.0.0.1"]) as running,
        prometheus(own, replace(target_of(running, gate), server_name="another.lab"), "watch1") as port,
    ):
        until(port, 'up{job="qwen", host="rack1"} == 0')
        assert running.engines["a"].asked == []

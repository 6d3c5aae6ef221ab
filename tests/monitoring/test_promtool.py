"""Configuration, alerts and every query of the dashboard, judged by the distribution's promtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from qwenlab.monitoring.alerts import rules
from qwenlab.monitoring.dashboard import PANELS
from qwenlab.monitoring.files import FOLDER, RULES, watcher_files
from tests.lab.image import lower_directories
from tests.monitoring.test_files import EVERYONE, settings, whole

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def promtool(request: pytest.FixtureRequest) -> Path:
    """The program of that Debian release; it needs nothing but itself and libc."""
    return lower_directories(request.param, ("prometheus", "python3"))[0] / "usr/bin/promtool"


def ask(promtool: Path, *arguments: str) -> str:
    """What it says; fails when it is not content."""
    done = subprocess.run([str(promtool), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_configuration_passes(promtool: Path, tmp_path: Path) -> None:
    here = tmp_path / "etc"
    for name in ("keys/rack1", "keys/rack2", "tls/rack2.pem", "rules.yml"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("text\n")
    (here / "rules.yml").write_text(watcher_files(settings())[RULES].content)
    text = whole(*EVERYONE.values(), alertmanagers=["watch1:9093"]).replace(FOLDER, str(here))
    (here / "prometheus.yml").write_text(text)
    said = ask(promtool, "check", "config", str(here / "prometheus.yml"))
    assert f"{len(rules(settings())['groups'][0]['rules'])} rules found" in said


def test_every_query_of_the_dashboard_is_promql(promtool: Path, tmp_path: Path) -> None:
    queries = [query for panel in PANELS for query in panel.queries.values()]
    plain = [query.replace("$__rate_interval", "1m").replace("$host", "rack.*") for query in queries]
    group = {"name": "g", "rules": [{"record": f"panel:{place}", "expr": one} for place, one in enumerate(plain)]}
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [group]}))
    assert f"{len(queries)} rules found" in ask(promtool, "check", "rules", str(tmp_path / "queries.yml"))


ENGINE = 'job="qwen", host="rack1", unit="engine1"'
RUNNING = f'vllm:num_requests_running{{{ENGINE}, engine="0"}}'
WAITING = f'vllm:num_requests_waiting{{{ENGINE}, engine="0"}}'
MADE = f'vllm:generation_tokens_total{{{ENGINE}, engine="0"}}'
READ = f'vllm:prompt_tokens_total{{{ENGINE}, engine="0"}}'
KV = f'vllm:kv_cache_usage_perc{{{ENGINE}, engine="0"}}'
CARD = 'qwen_card_temperature_celsius{job="qwen-node", host="rack1", card="GPU-a", name="RTX 3090"}'
DISK = 'job="qwen-node", host="rack1", mountpoint="/", fstype="ext4"'
SERVER = 'haproxy_server_status{job="qwen-gateway", host="rack1", proxy="engines", server="engine1", state="UP"}'


@pytest.mark.parametrize(
    ("series", "alarms"),
    [
        ({f"up{{{ENGINE}}}": "0x60"}, ["QwenEngineDown"]),
        ({f"up{{{ENGINE}}}": "1x60"}, []),
        ({'up{job="qwen-node", host="rack1"}': "0x60"}, ["QwenHostDown"]),
        ({RUNNING: "1x60", MADE: "7x60", READ: "9x60"}, ["QwenNoTokens"]),
        ({RUNNING: "1x60", MADE: "0+5x60", READ: "9x60"}, []),
        ({RUNNING: "1x60", MADE: "7x60", READ: "0+99x60"}, []),
        ({RUNNING: "0x60", MADE: "7x60", READ: "9x60"}, []),
        ({KV: "0.99x60", WAITING: "2x60"}, ["QwenKvFull"]),
        ({KV: "0.99x60", WAITING: "0x60"}, []),
        ({KV: "0.9x60", WAITING: "2x60"}, []),
        ({MADE: "5x10 0x10 3x10 1x30"}, ["QwenEngineRestarts"]),
        ({MADE: "5x20 0x40"}, []),
        ({SERVER: "0x60"}, ["QwenGatewayWithoutEngine"]),
        ({SERVER: "1x60"}, []),
        ({CARD: "91x60"}, ["QwenCardHot"]),
        ({CARD: "80x60"}, []),
        ({'qwen_cards_read_seconds{job="qwen-node", host="rack1"}': "0x60"}, ["QwenCardsUnread"]),
        ({'qwen_cards_read_seconds{job="qwen-node", host="rack1"}': "0+60x60"}, []),
        (
            {f"node_filesystem_avail_bytes{{{DISK}}}": "5x60", f"node_filesystem_size_bytes{{{DISK}}}": "100x60"},
            ["QwenDiskFull"],
        ),
        (
            {f"node_filesystem_avail_bytes{{{DISK}}}": "20x60", f"node_filesystem_size_bytes{{{DISK}}}": "100x60"},
            [],
        ),
    ],
)
def test_what_an_hour_of_figures_raises(
    promtool: Path, tmp_path: Path, series: dict[str, str], alarms: list[str]
) -> None:
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules(settings())))
    names = [rule["alert"] for rule in rules(settings())["groups"][0]["rules"]]
    expected: list[dict[str, Any]] = [
        {"eval_time": "59m", "alertname": name, "exp_alerts": []} for name in names if name not in alarms
    ]
    test = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": expected,
            }
        ],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    ask(promtool, "test", "rules", str(tmp_path / "test.yml"))
    for name in alarms:
        # promtool wants every label and word of an alarm that it expects; that there is one is what counts here
        test["tests"][0]["alert_rule_test"] = [{"eval_time": "59m", "alertname": name, "exp_alerts": []}]  # type: ignore[index]
        (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
        done = subprocess.run(
            [str(promtool), "test", "rules", str(tmp_path / "test.yml")], capture_output=True, text=True, check=False
        )
        assert re.search(rf"alertname: {name}\b", done.stdout + done.stderr), done.stdout + done.stderr
        assert 'host="rack1"' in done.stdout + done.stderr

"""The Grafana dashboard. Pure: a table of panels, and the JSON that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, COLUMNS = 8, 7, 3
HOSTS = 'host=~"$host"'
ENGINES = f'job="qwen", {HOSTS}'


@dataclass(frozen=True)
class Panel:
    """One graph.

    Attributes:
        queries: legend to PromQL.
        unit: Grafana's name of it.
    """

    title: str
    unit: str
    queries: dict[str, str]


def _quantiles(metric: str) -> dict[str, str]:
    return {
        f"{legend} {{{{host}}}} {{{{unit}}}}": f"histogram_quantile({share}, sum by (host, unit, le) "
        f"(rate({metric}_bucket{{{ENGINES}}}[$__rate_interval])))"
        for legend, share in (("median", 0.5), ("95 %", 0.95))
    }


def _rate(metric: str) -> str:
    return f"sum by (host, unit) (rate({metric}{{{ENGINES}}}[$__rate_interval]))"


ENGINE = "{{host}} {{unit}}"
CARD = "{{host}} {{name}} {{card}}"
PANELS = (
    Panel("Engines that answer", "bool_yes_no", {ENGINE: f"up{{{ENGINES}}}"}),
    Panel("Tokens made", "tok/s", {ENGINE: _rate("vllm:generation_tokens_total")}),
    Panel("Prompt tokens read", "tok/s", {ENGINE: _rate("vllm:prompt_tokens_total")}),
    Panel(
        "Requests",
        "short",
        {
            f"running {ENGINE}": f"sum by (host, unit) (vllm:num_requests_running{{{ENGINES}}})",
            f"waiting {ENGINE}": f"sum by (host, unit) (vllm:num_requests_waiting{{{ENGINES}}})",
        },
    ),
    Panel("KV pool in use", "percentunit", {ENGINE: f"max by (host, unit) (vllm:kv_cache_usage_perc{{{ENGINES}}})"}),
    Panel(
        "Prompt tokens found in the prefix cache",
        "percentunit",
        {ENGINE: f"{_rate('vllm:prefix_cache_hits_total')} / {_rate('vllm:prefix_cache_queries_total')}"},
    ),
    Panel("Time to the first token", "s", _quantiles("vllm:time_to_first_token_seconds")),
    Panel("Time between tokens", "s", _quantiles("vllm:inter_token_latency_seconds")),
    Panel("Time of a request", "s", _quantiles("vllm:e2e_request_latency_seconds")),
    Panel(
        "Draft tokens accepted",
        "percentunit",
        {
            ENGINE: f"{_rate('vllm:spec_decode_num_accepted_tokens_total')} / "
            f"{_rate('vllm:spec_decode_num_draft_tokens_total')}"
        },
    ),
    Panel(
        "Requests ended",
        "reqps",
        {
            f"{ENGINE} {{{{finished_reason}}}}": "sum by (host, unit, finished_reason) "
            f"(rate(vllm:request_success_total{{{ENGINES}}}[$__rate_interval]))"
        },
    ),
    Panel("Preemptions", "cps", {ENGINE: _rate("vllm:num_preemptions_total")}),
    Panel("Temperature of the cards", "celsius", {CARD: f"qwen_card_temperature_celsius{{{HOSTS}}}"}),
    Panel("Power of the cards", "watt", {CARD: f"qwen_card_power_watts{{{HOSTS}}}"}),
    Panel("Memory of the cards", "bytes", {CARD: f"qwen_card_memory_used_bytes{{{HOSTS}}}"}),
    Panel("Use of the cards", "percentunit", {CARD: f"qwen_card_utilization_ratio{{{HOSTS}}}"}),
    Panel(
        "Memory of the host that is free",
        "bytes",
        {"{{host}}": f'node_memory_MemAvailable_bytes{{job="qwen-node", {HOSTS}}}'},
    ),
    Panel(
        "Disk that is free",
        "bytes",
        {
            "{{host}} {{mountpoint}}": f'node_filesystem_avail_bytes{{job="qwen-node", {HOSTS}, '
            'fstype!~"tmpfs|ramfs|squashfs|iso9660"}'
        },
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana reads it from a file."""
    source = {"type": "prometheus", "uid": "${source}"}
    panels = [
        {
            "id": place + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": source,
            "gridPos": {
                "x": place % COLUMNS * WIDTH,
                "y": place // COLUMNS * HEIGHT,
                "w": WIDTH,
                "h": HEIGHT,
            },
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": [
                {"refId": chr(ord("A") + number), "expr": query, "legendFormat": legend, "datasource": source}
                for number, (legend, query) in enumerate(panel.queries.items())
            ],
        }
        for place, panel in enumerate(PANELS)
    ]
    hosts = {
        "name": "host",
        "label": "Host",
        "type": "query",
        "datasource": source,
        "query": {"query": 'label_values(up{job="qwen"}, host)', "refId": "hosts"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": ["All"], "value": ["$__all"]},
    }
    sources = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {
        "uid": "qwen",
        "title": "Qwen",
        "tags": ["qwen"],
        "schemaVersion": 38,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [sources, hosts]},
        "panels": panels,
    }

"""When Prometheus raises an alarm. Pure: a table, and the file that it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qwenlab.settings import Settings

FILES = 'fstype!~"tmpfs|ramfs|squashfs|iso9660"'


@dataclass(frozen=True)
class Alert:
    """Attributes:
    when: PromQL; the alarm is for every series that it yields.
    lasting: how long that must hold.
    says, do: for the person who is woken; Prometheus' templates.
    """

    name: str
    when: str
    lasting: str
    severity: str
    says: str
    do: str


def alerts(settings: Settings) -> tuple[Alert, ...]:
    """The table, with the thresholds of the host that runs Prometheus."""
    return (
        Alert(
            "QwenEngineDown",
            'up{job="qwen"} == 0',
            "3m",
            "critical",
            "engine {{ $labels.unit }} on {{ $labels.host }} does not answer",
            "on the host: systemctl status and journalctl -eu qwen-engine@{{ $labels.unit }}",
        ),
        Alert(
            "QwenHostDown",
            'up{job="qwen-node"} == 0',
            "3m",
            "critical",
            "host {{ $labels.host }} does not answer",
            "is it up, and may this Prometheus still read its figures (qwen_scraped_from)?",
        ),
        Alert(
            "QwenNoTokens",
            'sum by (host, unit) (vllm:num_requests_running{job="qwen"}) > 0'
            ' and sum by (host, unit) (rate(vllm:generation_tokens_total{job="qwen"}[10m])) == 0'
            ' and sum by (host, unit) (rate(vllm:prompt_tokens_total{job="qwen"}[10m])) == 0',
            "5m",
            "critical",
            "engine {{ $labels.unit }} on {{ $labels.host }} has requests and made no token for ten minutes",
            "on the host: journalctl -u qwen-engine@{{ $labels.unit }}; it is restarted by itself when its own probe "
            "gets no answer either",
        ),
        Alert(
            "QwenKvFull",
            'max by (host, unit) (vllm:kv_cache_usage_perc{job="qwen"}) > 0.95'
            ' and sum by (host, unit) (vllm:num_requests_waiting{job="qwen"}) > 0',
            "10m",
            "warning",
            "engine {{ $labels.unit }} on {{ $labels.host }}: KV pool full and requests waiting for ten minutes",
            "shorter contexts, fewer users at once, or another engine; qwen_context and qwen_concurrency plan for it",
        ),
        Alert(
            "QwenEngineRestarts",
            'sum by (host, unit) (resets(vllm:generation_tokens_total{job="qwen"}[1h])) >= 2',
            "0m",
            "warning",
            "engine {{ $labels.unit }} on {{ $labels.host }} restarted {{ $value }} times within an hour",
            "pyinfra INVENTORY plays/status.py -y names what its journal says",
        ),
        Alert(
            "QwenGatewayWithoutEngine",
            'haproxy_server_status{job="qwen-gateway", proxy="engines", state="UP"} == 0',
            "3m",
            "warning",
            "the gateway of {{ $labels.host }} leaves engine {{ $labels.server }} out",
            "on the host: systemctl status qwen-engine@{{ $labels.server }} qwen-gateway",
        ),
        Alert(
            "QwenCardHot",
            f"qwen_card_temperature_celsius >= {settings.card_hot_c}",
            "5m",
            "warning",
            "card {{ $labels.card }} ({{ $labels.name }}) of {{ $labels.host }} is at {{ $value }} C",
            "airflow, dust, fans; qwen_power_limit_w lowers what it draws",
        ),
        Alert(
            "QwenCardsUnread",
            "time() - qwen_cards_read_seconds > 120",
            "3m",
            "warning",
            "nvidia-smi on {{ $labels.host }} answers no more",
            "on the host: journalctl -u qwen-card-metrics; journalctl -k -g Xid",
        ),
        Alert(
            "QwenDiskFull",
            f'node_filesystem_avail_bytes{{job="qwen-node", {FILES}}}'
            f' / node_filesystem_size_bytes{{job="qwen-node", {FILES}}} < 0.08',
            "10m",
            "warning",
            "{{ $labels.mountpoint }} on {{ $labels.host }} has {{ $value | humanizePercentage }} left",
            "pyinfra INVENTORY plays/prune.py removes checkpoints that nobody uses",
        ),
    )


def rules(settings: Settings) -> dict[str, Any]:
    """The rule file, YAML-able."""
    made = [
        {
            "alert": one.name,
            "expr": one.when,
            "for": one.lasting,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.says, "description": one.do},
        }
        for one in alerts(settings)
    ]
    return {"groups": [{"name": "qwen", "rules": made}]}

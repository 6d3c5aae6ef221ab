"""What monitoring has left on a host, and what it needs to know of a watched one."""

from __future__ import annotations

import json
from typing import Any

from pyinfra.api.facts import FactBase

from qwenlab.facts.own_service import OwnServiceFact


class Prometheus(OwnServiceFact):
    """How our Prometheus stands; it loads its configuration and its rules."""

    key, what = "prometheus", "Prometheus"
    files = ("/etc/qwen-monitoring/prometheus.yml", "/etc/qwen-monitoring/rules.yml")


class TargetJobs(FactBase[dict[str, list[dict[str, Any]]]]):
    """Scrape jobs that are kept, by host's file name. A file that cannot be read counts as none."""

    def command(self) -> str:
        """Each file on one line, after its name."""
        return (
            'cd /etc/qwen-monitoring/targets 2>/dev/null && for file in *.json; do [ -e "$file" ] && '
            'echo "target=${file%.json} $(tr -d \'\\n\' < "$file")"; done; true'
        )

    def process(self, output: list[str]) -> dict[str, list[dict[str, Any]]]:
        """JSON by name."""
        found = {}
        for line in output:
            name, _, text = line.strip().removeprefix("target=").partition(" ")
            try:
                found[name] = list(json.loads(text))
            except ValueError:
                continue
        return found

    @staticmethod
    def default() -> dict[str, list[dict[str, Any]]]:
        """None."""
        return {}


class GatewayCertificates(FactBase[str]):
    """The certificates that the gateway shows, without its key; empty without TLS."""

    def command(self) -> str:
        """Root reads the file."""
        return "sed -n '/BEGIN CERTIFICATE/,/END CERTIFICATE/p' /etc/qwen/gateway/tls.pem 2>/dev/null; true"

    def process(self, output: list[str]) -> str:
        """PEM."""
        return "".join(f"{line.strip()}\n" for line in output)

    @staticmethod
    def default() -> str:
        """None."""
        return ""

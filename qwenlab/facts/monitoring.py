"""What monitoring has left on a host, and what it needs to know of a watched one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase

STATE = r"""
word() { "$@" 2>/dev/null | head -n1 | grep . || echo unknown; }
mark() { cat "/run/qwen-prometheus/$1" 2>/dev/null | cut -d' ' -f1 | grep . || echo none; }
name=qwen-prometheus.service
unit=/etc/systemd/system/$name
[ -e "$unit" ] && there=yes || there=no
echo "prometheus=$there $(word systemctl is-active $name) $(word systemctl is-enabled $name)" \
    "$(word systemctl show -p NeedDaemonReload --value $name)"
echo "started=$(mark started) $(sha256sum < "$unit" 2>/dev/null | cut -d' ' -f1)"
echo "loaded=$(mark loaded)" \
    "$(cat /etc/qwen-monitoring/prometheus.yml /etc/qwen-monitoring/rules.yml 2>/dev/null | sha256sum | cut -d' ' -f1)"
true
"""


@dataclass(frozen=True)
class PrometheusState:
    """Attributes:
    there: its unit file exists.
    restart: it does not run, or runs with another unit file.
    reload: it runs with another configuration than lies there.
    """

    there: bool = False
    enabled: bool = False
    restart: bool = True
    reload: bool = True


class Prometheus(FactBase[PrometheusState]):
    """`PrometheusState` of a host."""

    def command(self) -> str:
        """One script."""
        return STATE.strip()

    def process(self, output: list[str]) -> PrometheusState:
        """Parse; an odd answer fails this host alone."""
        known = dict(line.strip().split("=", 1) for line in output if "=" in line)
        try:
            there, active, enabled, reload = known["prometheus"].split()
            started, unit = known["started"].split()
            loaded, files = known["loaded"].split()
        except (KeyError, ValueError) as error:
            raise FactProcessError(f"the state of Prometheus could not be read: {output!r}") from error
        if there == "no":
            return PrometheusState()
        restart = active != "active" or started != unit or reload == "yes"
        return PrometheusState(True, enabled == "enabled", restart, loaded != files)

    @staticmethod
    def default() -> PrometheusState:
        """Nothing there."""
        return PrometheusState()


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

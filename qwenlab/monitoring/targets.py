"""Where each host's figures are, as Prometheus asks for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from qwenlab.settings.monitoring import NODE_PORT

KEYS = "/etc/qwen-monitoring/keys"
CERTIFICATES = "/etc/qwen-monitoring/tls"


@dataclass(frozen=True)
class Target:
    """The figures of one host.

    Attributes:
        host: name in the inventory.
        address: at which Prometheus reaches it.
        engines: name to port.
        gateway: port at which the gateway passes figures on; None: the engines are asked themselves.
        reachable: whether another host may ask the engines; the host itself always may.
        node: whether it has a node exporter.
        keyed: whether figures need the API key.
        server_name: name in the gateway's certificate; None: no TLS.
        key, authority: content of the files that go with it: API key, and the certificate to trust.
    """

    host: str
    address: str
    engines: dict[str, int]
    gateway: int | None = None
    reachable: bool = True
    node: bool = False
    keyed: bool = True
    server_name: str | None = None
    key: str | None = field(default=None, repr=False)
    authority: str | None = field(default=None, repr=False)

    @property
    def file(self) -> str:
        """Name of its files."""
        return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in self.host)

    def jobs(self, watcher: str) -> list[dict[str, Any]]:
        """Scrape jobs of the host, for the Prometheus on the host `watcher`; empty when nothing can be asked."""
        return [*self._engines(watcher == self.host), *self._node(watcher == self.host)]

    def _engines(self, itself: bool) -> list[dict[str, Any]]:
        if not itself and not self.reachable:
            return []
        direct = itself or self.gateway is None
        address = "127.0.0.1" if itself else self.address
        targets = [
            {
                "targets": [_at(address, port if direct or self.gateway is None else self.gateway)],
                "labels": {
                    "host": self.host,
                    "unit": name,
                    **({} if direct else {"__metrics_path__": f"/metrics/{name}"}),
                },
            }
            for name, port in self.engines.items()
        ]
        more: dict[str, Any] = {}
        if self.keyed:
            more["authorization"] = {"credentials_file": f"{KEYS}/{self.file}"}
        if not direct and self.server_name is not None:
            more["scheme"] = "https"
            more["tls_config"] = {"ca_file": f"{CERTIFICATES}/{self.file}.pem", "server_name": self.server_name}
        jobs = [_job(f"qwen {self.host}", "qwen", targets, more)]
        if not direct:
            own = [{"targets": [_at(self.address, self.gateway or 0)], "labels": {"host": self.host}}]
            plain = {key: value for key, value in more.items() if key != "authorization"}
            jobs.append(_job(f"qwen-gateway {self.host}", "qwen-gateway", own, plain))
        return jobs

    def _node(self, itself: bool) -> list[dict[str, Any]]:
        if not self.node:
            return []
        place = {"targets": [_at("127.0.0.1" if itself else self.address, NODE_PORT)], "labels": {"host": self.host}}
        return [_job(f"qwen-node {self.host}", "qwen-node", [place], {})]


def _job(name: str, kind: str, targets: list[dict[str, Any]], more: dict[str, Any]) -> dict[str, Any]:
    """A scrape job. Prometheus wants a name for each; what alerts and dashboard ask for is the kind."""
    relabel = [{"target_label": "job", "replacement": kind}]
    return {"job_name": name, **more, "static_configs": targets, "relabel_configs": relabel}


def _at(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

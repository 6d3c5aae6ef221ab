"""Settings of monitoring: who is watched, who watches."""

from __future__ import annotations

from ipaddress import ip_network

from pydantic import field_validator

from qwenlab.settings.fields import SettingsGroup, is_reachable, plain_address, setting

LAST_PORT = 65_535
NODE_PORT = 9100  # the node exporter's own; the distribution's package starts it there


class MonitoringSettings(SettingsGroup):
    """Prometheus for all hosts of the inventory, on the hosts of the group `monitoring`; see docs/monitoring.md."""

    serve: bool = setting(True, "deploy.py lets this host serve; off: it is in the inventory for monitoring alone")
    prometheus: bool = setting(
        False, "this host runs Prometheus for every host of the inventory; group_data/monitoring.py turns it on"
    )
    prometheus_bind: str = setting("127.0.0.1", "address that Prometheus listens on; it asks nobody for a password")
    prometheus_port: int = setting(9090, "port of Prometheus", ge=1, le=65535)
    prometheus_days: int = setting(30, "how long figures are kept", unit="days", ge=1, le=36_500)
    prometheus_max_gib: int = setting(10, "disk that figures may take", unit="GiB", ge=1, le=1_048_576)
    alertmanagers: list[str] = setting([], "Alertmanagers that are told of alerts, `host:port`")
    card_hot_c: int = setting(88, "temperature at which a card is reported", unit="C", ge=40, le=120)
    scraped_from: list[str] = setting(
        [],
        "addresses and networks whose Prometheus may read this host's figures: a node exporter's, and through the "
        "gateway the engines'; none: no node exporter",
    )

    @field_validator("scraped_from")
    @classmethod
    def _scraped_from_networks(cls, networks: list[str]) -> list[str]:
        for network in networks:
            try:
                ip_network(network.replace("%", "?"))
            except ValueError:
                raise ValueError(f"{network!r} is neither an IP address nor a network such as 10.0.0.0/24") from None
        return networks

    @field_validator("prometheus_bind")
    @classmethod
    def _prometheus_has_an_address(cls, value: str) -> str:
        plain_address(value)
        return value

    @field_validator("alertmanagers")
    @classmethod
    def _alertmanagers_have_ports(cls, places: list[str]) -> list[str]:
        for place in places:
            name, _, port = place.rpartition(":")
            bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
            if not is_reachable(bare) or not port.isdecimal() or not 1 <= int(port) <= LAST_PORT:
                raise ValueError(f"{place!r} is no host:port, e.g. watch1:9093")
        return places

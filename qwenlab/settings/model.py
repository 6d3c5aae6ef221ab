"""The one settings model: the sum of the groups, plus the checks that look across groups."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Self

from pydantic import model_validator

from qwenlab.settings.checkpoint import CheckpointSettings, CpuSettings
from qwenlab.settings.driver import DriverSettings
from qwenlab.settings.engine import EngineSettings
from qwenlab.settings.fields import SettingsGroup
from qwenlab.settings.gateway import GatewaySettings
from qwenlab.settings.host import HostSettings, NetworkSettings
from qwenlab.settings.monitoring import NODE_PORT, MonitoringSettings
from qwenlab.settings.patches import PatchSettings
from qwenlab.settings.planner import PlannerSettings
from qwenlab.settings.service import ServiceSettings

GROUPS: tuple[type[SettingsGroup], ...] = (
    # in the order of docs/settings.md and group_data/all.py
    EngineSettings,
    PatchSettings,
    CpuSettings,
    CheckpointSettings,
    PlannerSettings,
    ServiceSettings,
    GatewaySettings,
    HostSettings,
    NetworkSettings,
    DriverSettings,
    MonitoringSettings,
)


class Settings(
    HostSettings,
    NetworkSettings,
    EngineSettings,
    PatchSettings,
    CheckpointSettings,
    CpuSettings,
    PlannerSettings,
    ServiceSettings,
    GatewaySettings,
    DriverSettings,
    MonitoringSettings,
):
    """Every `qwen_*` setting of one host, validated. Field names are the keys without `qwen_`."""

    @model_validator(mode="after")
    def _cpu_knows_what_to_serve(self) -> Self:
        if self.engine == "cpu" and (self.cpu_checkpoint is None or self.cpu_revision is None):
            raise ValueError(
                "qwen_engine = 'cpu' serves what qwen_cpu_checkpoint (owner/name) and qwen_cpu_revision "
                "(commit) name; set both"
            )
        return self

    @model_validator(mode="after")
    def _offline_asks_nobody(self) -> Self:
        if self.offline and self.model_source == "peer":
            raise ValueError(
                "qwen_offline takes checkpoints from its bundle, qwen_model_source = 'peer' from other hosts; keep one"
            )
        if self.offline and self.cuda_from == "apt":
            raise ValueError("qwen_offline asks no repository: qwen_cuda_from = 'apt' would; take 'pip' or 'none'")
        return self

    @model_validator(mode="after")
    def _one_listener_a_port(self) -> Self:
        listeners = self.listeners
        for place, (key, port) in enumerate(listeners):
            if (other := next((name for name, taken in listeners[:place] if taken == port), None)) is not None:
                raise ValueError(f"{other} and {key} are both {port}: give one of them another port")
        return self

    @property
    def listeners(self) -> tuple[tuple[str, int], ...]:
        """Setting and port of all that listens on the host beside the engines, as far as it is asked for."""
        asked = (
            ("qwen_gateway_port", self.endpoint_port, self.gateway and self.serve),
            ("qwen_prometheus_port", self.prometheus_port, self.prometheus),
            ("the node exporter (qwen_scraped_from)", NODE_PORT, bool(self.scraped_from)),
            ("qwen_peer_port", self.peer_port, self.model_source == "peer" and self.serve),
        )
        return tuple((key, port) for key, port, wanted in asked if wanted)

    @property
    def engine_address(self) -> str:
        """The address that the engines listen on."""
        return "127.0.0.1" if self.gateway else self.bind_address

    @property
    def engine_on_loopback(self) -> bool:
        """Whether nobody beyond the host itself can reach an engine."""
        return ip_address(self.engine_address).is_loopback

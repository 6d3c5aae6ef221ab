"""Settings of the gateway: one endpoint for every engine of a host, and TLS."""

from __future__ import annotations

from typing import Self

from pydantic import field_validator, model_validator

from qwenlab.settings.fields import LONGEST_S, SettingsGroup, is_host_name, setting

TLS_PORT, PLAIN_PORT = 8443, 8080


class GatewaySettings(SettingsGroup):
    """One endpoint for all engines of a host, with TLS where asked for; see docs/gateway.md."""

    gateway: bool = setting(
        False, "one endpoint for all engines of the host (HAProxy) at qwen_bind; the engines listen on loopback alone"
    )
    gateway_port: int | None = setting(
        None, f"port of that endpoint; none: {TLS_PORT} with TLS, {PLAIN_PORT} without", ge=1, le=65535
    )
    gateway_certificate: str | None = setting(
        None, "PEM file on the control machine: the host's certificate, then those that lead to its authority"
    )
    gateway_key: str | None = setting(None, "PEM file on the control machine: the key of qwen_gateway_certificate")
    gateway_lab_ca: str | None = setting(
        None,
        "folder on the control machine of a certificate authority of your own: made at its first use, gives each host "
        "a certificate; clients trust its ca.crt",
    )
    gateway_names: list[str] = setting(
        [], "names and addresses in the certificate of qwen_gateway_lab_ca, beside those that the host is known by"
    )
    gateway_silence_s: int = setting(
        3600,
        "how long client or engine may be silent within a request, e.g. while a long prompt is read; also how long "
        "streams go on beside a reloaded gateway",
        unit="seconds",
        ge=10,
        le=LONGEST_S,
    )

    @property
    def gateway_tls(self) -> bool:
        """Whether the endpoint speaks TLS."""
        return self.gateway_certificate is not None or self.gateway_lab_ca is not None

    @property
    def endpoint_port(self) -> int:
        """The gateway's port."""
        return self.gateway_port or (TLS_PORT if self.gateway_tls else PLAIN_PORT)

    @field_validator("gateway_names")
    @classmethod
    def _gateway_has_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if not is_host_name(name):
                raise ValueError(f"{name!r} is neither a host name nor an IP address")
        return names

    @model_validator(mode="after")
    def _one_way_to_a_certificate(self) -> Self:
        given = [self.gateway_certificate, self.gateway_key]
        if None in given and given != [None, None]:
            raise ValueError("qwen_gateway_certificate and qwen_gateway_key belong together; set both")
        if self.gateway_certificate is not None and self.gateway_lab_ca is not None:
            raise ValueError("qwen_gateway_certificate and qwen_gateway_lab_ca are both set; keep one")
        if self.gateway_tls and not self.gateway:
            key = "qwen_gateway_certificate" if self.gateway_certificate is not None else "qwen_gateway_lab_ca"
            raise ValueError(f"{key} is for the gateway, and qwen_gateway is off: turn it on")
        return self

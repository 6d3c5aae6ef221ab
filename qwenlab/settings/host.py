"""Settings of the host base: service user, paths, room, proxies, certificates."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from pydantic import field_validator

from qwenlab.settings.fields import LONGEST_S, SettingsGroup, own_directory, plain_path, setting

ABSOLUTE = r"^/[^\s]*[^/\s]$"


class HostSettings(SettingsGroup):
    """What every component stands on."""

    user: str = setting(
        "qwen", "service user that owns checkpoints and runs the engine", pattern=r"^[a-z_][a-z0-9_-]{0,30}$"
    )
    home: str = setting(
        "/var/lib/qwen", "home of the service user: compile caches that survive restarts", pattern=ABSOLUTE
    )
    release_directory: str = setting("/opt/qwen", "where engine releases are built and kept", pattern=ABSOLUTE)
    model_directory: str = setting("/srv/qwen/models", "where checkpoints are kept", pattern=ABSOLUTE)
    min_release_gib: float | None = setting(
        None,
        "disk that must be free for a release; none: what the pinned release takes",
        unit="GiB",
        ge=0,
        allow_inf_nan=False,
    )
    min_model_gib: float | None = setting(
        None,
        "disk that must be free for checkpoints; none: 40 for cuda, 2 for cpu",
        unit="GiB",
        ge=0,
        allow_inf_nan=False,
    )
    min_ram_gib: float | None = setting(
        None, "memory that a host must have; none: what the pinned release needs", unit="GiB", ge=0, allow_inf_nan=False
    )
    max_clock_skew_s: int = setting(
        300, "how far the host's clock may be off the control machine's", unit="seconds", ge=1
    )

    @field_validator("home", "release_directory", "model_directory")
    @classmethod
    def _own_directories(cls, path: str) -> str | None:
        return own_directory(plain_path(path))

    @field_validator("user")
    @classmethod
    def _not_root(cls, name: str) -> str:
        if name == "root":
            raise ValueError("the engine does not run as root; name a user of its own, e.g. qwen")
        return name


class NetworkSettings(SettingsGroup):
    """How a host reaches package indexes and the model hub."""

    http_proxy: str | None = setting(None, "proxy for http addresses: apt, uv and the hub", pattern=r"^https?://\S+$")
    https_proxy: str | None = setting(None, "proxy for https addresses: apt, uv and the hub", pattern=r"^https?://\S+$")
    no_proxy: list[str] = setting([], "host names and domains reached without the proxy")
    extra_ca_certificates: list[str] = setting(
        [], "PEM files on the control machine that hosts shall trust beside their own certificates"
    )
    apt_lock_timeout_s: int = setting(
        600, "how long apt waits for another apt, e.g. unattended-upgrades", unit="seconds", ge=0, le=LONGEST_S
    )

    @field_validator("http_proxy", "https_proxy")
    @classmethod
    def _proxies_are_addresses(cls, value: str | None) -> str | None:
        if value is not None and (strange := re.findall(r"[^!-~]|[\"';\\\\`<>|]", value)):
            raise ValueError(f"{strange[0]!r} is no part of an address; in a user's name or password write it as %XX")
        return value

    @field_validator("no_proxy")
    @classmethod
    def _no_proxy_are_names(cls, names: list[str]) -> list[str]:
        for name in names:
            if not re.fullmatch(r"[!-+.-~-]+", name):
                raise ValueError(f"{name!r} is no host name, domain or network: one each, without commas and spaces")
        return names

    @field_validator("extra_ca_certificates")
    @classmethod
    def _file_names_differ(cls, paths: list[str]) -> list[str]:
        for path in paths:
            if not re.fullmatch(r"\w[\w.+@=~-]*", PurePosixPath(path).stem):
                raise ValueError(f"{path!r} names no file that a host could keep under its name")
        names = [PurePosixPath(path).stem for path in paths]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two certificates are named {', '.join(twice)}; file names must differ")
        return paths

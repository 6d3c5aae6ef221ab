"""Settings of the engine release: which vLLM, from where, how many releases are kept."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import field_validator, model_validator

from qwenlab.engine.pins import EngineRelease, pins
from qwenlab.settings.fields import SettingsGroup, own_directory, plain_path, setting

ON_HOST = "host:"


class EngineSettings(SettingsGroup):
    """Which vLLM is built into a release, and where its parts come from."""

    engine: Literal["cuda", "cpu"] = setting(
        "cuda", "vLLM build: `cuda` for NVIDIA cards, `cpu` for trying qwenlab out"
    )
    vllm: str | None = setting(None, "vLLM version; none: the pinned default of the engine")
    python: str | None = setting(
        None,
        "Python of the engine, e.g. `3.12`; none: the distribution's python3 where the release supports it",
        pattern=r"^3\.\d{1,2}$",
    )
    python_mirror: str | None = setting(
        None, "where uv fetches a Python that the host lacks; none: uv's own default", pattern=r"^(https?|file)://\S+$"
    )
    index_url: str = setting(
        "https://pypi.org/simple", "package index (PEP 503) for uv and the engine", pattern=r"^(https?|file)://\S+$"
    )
    extra_index_urls: list[str] = setting([], "further package indexes, searched before the main one")
    find_links: list[str] | None = setting(
        None, "pages or folders that list wheels beyond the index; none: those that the pinned release needs"
    )
    wheel_directory: str | None = setting(
        None, "folder of wheels on the host, looked into before any index", pattern=r"^/\S+$"
    )
    offline: str | None = setting(
        None,
        "directory of an offline bundle that the deploy uses alone: on the control machine, or `host:/DIR` for one "
        "that lies on the host (docs/offline.md); none: the network is used",
        min_length=1,
    )
    keep_releases: int = setting(2, "releases kept beside the current one, for going back", ge=0, le=20)
    uv_cache_directory: str = setting("/var/cache/qwen/uv", "uv's cache on the host", pattern=r"^/\S+$")

    @property
    def release(self) -> EngineRelease:
        """The pinned release that these settings name."""
        return pins().release(self.engine, self.vllm)

    @property
    def index_urls(self) -> tuple[str, ...]:
        """All indexes, the extra ones first, as uv searches them; empty when offline."""
        return () if self.offline else (*self.extra_index_urls, self.index_url)

    @property
    def wheel_sources(self) -> tuple[str, ...]:
        """Folders and pages of wheels, nearest first."""
        pages = self.release.find_links if self.find_links is None else tuple(self.find_links)
        return (*([self.wheel_directory] if self.wheel_directory else []), *(() if self.offline else pages))

    @property
    def bundle_on_host(self) -> str | None:
        """Directory of a bundle that lies on the host already; None for one that is carried there, or none."""
        if self.offline is None or not self.offline.startswith(ON_HOST):
            return None
        return self.offline.removeprefix(ON_HOST)

    @field_validator("offline", mode="before")
    @classmethod
    def _names_a_bundle(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError(
                "it names the directory of a bundle that `python -m qwenlab bundle` made (docs/offline.md), no longer "
                "True or False; a folder of wheels that is looked into before an index is qwen_wheel_directory"
            )
        if isinstance(value, str) and value.startswith(ON_HOST):
            path = value.removeprefix(ON_HOST)
            odd = ".." in path.split("/") or any(one.isspace() for one in path)
            if not path.startswith("/") or not path.strip("/") or odd:
                raise ValueError(f"{value!r}: write host:/DIR, an absolute path on the host without spaces or '..'")
            return ON_HOST + path.rstrip("/")
        return value

    @field_validator("uv_cache_directory", "wheel_directory")
    @classmethod
    def _own_cache_and_wheels(cls, path: str | None) -> str | None:
        return own_directory(plain_path(path))

    @field_validator("extra_index_urls", "find_links")
    @classmethod
    def _are_places(cls, places: list[str] | None) -> list[str] | None:
        for place in places or ():
            if not re.fullmatch(r"((https?|file)://|/)[!-~]+", place):
                raise ValueError(f"{place!r} is neither an address (https://...) nor a folder of the host (/...)")
        return places

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        versions = pins().versions(self.engine)
        if self.vllm is not None and self.vllm not in versions:
            raise ValueError(
                f"qwen_vllm = {self.vllm!r} is not pinned for qwen_engine = {self.engine!r}; "
                f"there is {', '.join(versions)}"
            )
        supported = self.release.pythons
        if self.python is not None and self.python not in supported:
            raise ValueError(
                f"qwen_python = {self.python!r}: vLLM {self.release.vllm} ({self.engine}) runs on "
                f"{', '.join(supported)}"
            )
        if self.offline and self.wheel_directory is not None:
            raise ValueError("qwen_offline uses its bundle alone: take qwen_wheel_directory out")
        return self

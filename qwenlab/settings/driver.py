"""Settings of the NVIDIA driver, the CUDA toolkit, reboots and power limits."""

from __future__ import annotations

import math
from typing import Literal, Self

from pydantic import field_validator, model_validator

from qwenlab.driver.tables import BRANCHES
from qwenlab.settings.fields import LONGEST_S, SettingsGroup, setting

NVIDIA_REPOSITORY = "https://developer.download.nvidia.com/compute/cuda/repos"


class DriverSettings(SettingsGroup):
    """The driver, the compiler for kernels, reboots and power. A driver that works is left alone."""

    driver_branch: int | None = setting(
        None, "driver branch to have; none: 580 (long-lived) where no driver works, else the one that works", ge=580
    )
    driver_version: str | None = setting(
        None,
        "exact driver version to have, e.g. `580.126.09`; none: the newest of the branch",
        pattern=r"^\d{3}(\.\d+)+$",
    )
    driver_flavour: Literal["auto", "open", "proprietary"] = setting(
        "auto", "kernel module; `auto`: open where every card has it, else proprietary"
    )
    driver_allow_drop: bool = setting(False, "accept a branch that no longer drives some of the host's cards")
    driver_repository: str = setting(
        NVIDIA_REPOSITORY, "NVIDIA's package repository or a mirror of it", pattern=r"^https?://\S*[^/\s]$"
    )
    driver_key_fingerprint: str | None = setting(
        None,
        "fingerprint of the repository's signing key, 40 hex digits; none: NVIDIA's own for the distribution",
        pattern=r"^[0-9A-Fa-f]{40}$",
    )
    allow_reboot: bool = setting(False, "reboot a host when its driver needs that, at most once")
    reboot_serial: int = setting(1, "hosts that may be rebooting at the same time", ge=1)
    reboot_timeout_s: int = setting(900, "how long a host may take to come back", unit="seconds", ge=30, le=LONGEST_S)
    cuda_from: Literal["pip", "apt", "none"] = setting(
        "pip",
        "compiler for kernels made at run time: `pip` takes the pinned wheels of the release, `apt` NVIDIA's toolkit "
        "packages, `none` leaves it to the host",
    )
    power_limit_w: float | dict[str, float] | Literal["advised"] | None = setting(
        None, "power limit of each card: a number, a dict from model name to number, or `advised`; none: not touched"
    )

    @field_validator("power_limit_w", mode="before")
    @classmethod
    def _has_a_form(cls, value: object) -> object:
        """In one sentence what pydantic says in one for each of the three forms."""
        numbers = value.values() if isinstance(value, dict) else [value]
        if value in (None, "advised") or all(type(one) in (int, float) for one in numbers):
            return value
        raise ValueError(f"a number, a dict from model name to number, or 'advised' is expected, not {value!r}")

    @field_validator("power_limit_w")
    @classmethod
    def _is_a_limit(
        cls, value: float | dict[str, float] | Literal["advised"] | None
    ) -> float | dict[str, float] | Literal["advised"] | None:
        watts = value.values() if isinstance(value, dict) else [value] if isinstance(value, (int, float)) else []
        for limit in watts:
            if not 0 < limit < math.inf:
                raise ValueError(f"{limit:g} W is no power limit; it must be above 0")
        return value

    @model_validator(mode="after")
    def _known_branch(self) -> Self:
        asked = self.driver_branch
        if self.driver_version is not None:
            of_version = int(self.driver_version.split(".")[0])
            if asked is not None and asked != of_version:
                raise ValueError(
                    f"qwen_driver_branch = {asked} and qwen_driver_version = {self.driver_version!r} contradict each "
                    "other; keep one"
                )
            asked = of_version
        if asked is not None and asked not in BRANCHES:
            raise ValueError(
                f"driver branch {asked} is not known; there is {', '.join(map(str, BRANCHES))} "
                "(580 is the long-lived one)"
            )
        return self

    @property
    def asked_branch(self) -> int | None:
        """The branch that branch or version name; None when nobody asked."""
        return int(self.driver_version.split(".")[0]) if self.driver_version else self.driver_branch

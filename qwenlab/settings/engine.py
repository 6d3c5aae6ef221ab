"""Settings of the engine release: which vLLM, from where, how many releases are kept."""

from __future__ import annotations

from typing import Literal

from qwenlab.settings.fields import SettingsGroup, setting


class EngineSettings(SettingsGroup):
    """Which vLLM is built into a release."""

    engine: Literal["cuda", "cpu"] = setting(
        "cuda", "vLLM build: `cuda` for NVIDIA cards, `cpu` for trying qwenlab out"
    )

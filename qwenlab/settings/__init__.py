"""The settings of a host: one validated object, built from its `qwen_*` data.

    settings = Settings.from_host_data(host.data.dict(), host="rack1")

Groups live in modules of their own; a new setting is one field in one of them (see CONTRIBUTING.md).
"""

from __future__ import annotations

from qwenlab.settings.loading import SettingsError, SettingsProblem, load
from qwenlab.settings.model import Settings

__all__ = ["Settings", "SettingsError", "SettingsProblem", "load"]

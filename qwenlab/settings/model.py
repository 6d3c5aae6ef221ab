"""The one settings model: the sum of the groups, plus the checks that look across groups."""

from __future__ import annotations

from qwenlab.settings.engine import EngineSettings
from qwenlab.settings.host import HostSettings


class Settings(HostSettings, EngineSettings):
    """Every `qwen_*` setting of one host, validated. Field names are the keys without `qwen_`."""

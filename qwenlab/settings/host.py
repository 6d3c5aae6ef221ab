"""Settings of the host base: service user, paths, proxies, certificates."""

from __future__ import annotations

from qwenlab.settings.fields import SettingsGroup, setting


class HostSettings(SettingsGroup):
    """What every component stands on."""

    user: str = setting(
        "qwen", "service user that owns checkpoints and runs the engine", pattern=r"^[a-z_][a-z0-9_-]{0,30}$"
    )

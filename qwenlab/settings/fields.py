"""How one setting is declared: a pydantic field with a default, a unit and one line of meaning."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict


class SettingsGroup(BaseModel):
    """Base of every group of settings. Strict: `"8"` is not a number, `1` is not a boolean."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


def setting(default: Any, meaning: str, *, unit: str = "", secret: bool = False, **constraints: Any) -> Any:
    """A field of a `SettingsGroup`.

    Args:
        default: value when neither host nor group data name the key.
        meaning: one line for the settings table.
        unit: `GiB`, `tokens`, `seconds`, `W`, ...; empty for plain words and switches.
        secret: never shown in tables, plans, diffs or logs.
        constraints: pydantic's own (`ge`, `le`, `pattern`, ...).
    """
    extra: JsonDict = {"unit": unit, "secret": secret}
    if isinstance(default, (list, dict)):
        return Field(default_factory=default.copy, description=meaning, json_schema_extra=extra, **constraints)
    return Field(default=default, description=meaning, json_schema_extra=extra, **constraints)

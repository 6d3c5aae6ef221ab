"""How one setting is declared: a pydantic field with a default, a unit and one line of meaning."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

# Directories that belong to the system: handing them to the service user, or clearing them, would break the host.
SYSTEM_DIRECTORIES = frozenset(
    {
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin"),
        *("/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin", "/usr/share"),
        *("/var", "/var/cache", "/var/lib", "/var/log", "/var/tmp"),
    }
)
KERNEL_TREES = frozenset({"boot", "dev", "proc", "sys"})  # nothing below these either


def own_directory(path: str | None) -> str | None:
    """The path, when it is one that qwenlab may own.

    Raises:
        ValueError: it is the system's, or has `..` in it.
    """
    if path is None:
        return None
    parts = PurePosixPath(path).parts
    if ".." in parts:
        raise ValueError(f"{path} has '..' in it; write the directory itself")
    plain = "/" + "/".join(parts[1:])
    if plain in SYSTEM_DIRECTORIES or (len(parts) > 1 and parts[1] in KERNEL_TREES):
        raise ValueError(f"{path} is the system's own; choose a directory of its own, e.g. /srv/qwen")
    return path


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
    constraints["repr"] = not secret  # tracebacks, and pyinfra for an operation without a name, print arguments
    if isinstance(default, (list, dict)):
        return Field(default_factory=default.copy, description=meaning, json_schema_extra=extra, **constraints)
    return Field(default=default, description=meaning, json_schema_extra=extra, **constraints)

"""How one setting is declared: a pydantic field with a default, a unit and one line of meaning."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import PurePosixPath
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

# Directories that belong to the system: handing them to the service user, or clearing them, would break the host.
SYSTEM_DIRECTORIES = frozenset(
    {
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin"),
        *("/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin", "/usr/share"),
        *("/var", "/var/cache", "/var/lib", "/var/log", "/var/tmp"),
    }
)
KERNEL_TREES = frozenset({"boot", "dev", "proc", "sys"})  # nothing below these either
LONGEST_S = 604_800  # a week: HAProxy counts milliseconds in 31 bits, and nothing here is worth waiting longer for
PLAIN = r"[\w.+@=~,/-]"  # what systemd, sh, apt and lists of paths all take as it is written


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


def plain_path(path: str | None) -> str | None:
    """The path, when no unit, script or list of paths reads more into it than its letters.

    Raises:
        ValueError: it has a character that systemd, a shell or a list of paths takes for a sign of its own.
    """
    if path is not None and (strange := re.sub(PLAIN, "", path)):
        raise ValueError(f"{path!r} has {strange[0]!r} in it: only letters, digits and . _ + @ = ~ , - may be there")
    return path


def plain_address(value: str) -> IPv4Address | IPv6Address:
    """The IP address that `value` is.

    Raises:
        ValueError: it is none, or holds for one interface alone (`fe80::1%eth0`), which units and HAProxy cannot say.
    """
    try:
        address = ip_address(value)
    except ValueError:
        raise ValueError(f"{value!r} is not an IP address") from None
    if "%" in value:
        raise ValueError(f"{value!r} holds for one interface alone; take an address without %")
    return address


def is_host_name(name: str) -> bool:
    """Whether it is an IP address, or a DNS name of letters, digits and `-` (`*.` may lead it)."""
    try:
        return "%" not in str(ip_address(name))
    except ValueError:
        labels = name.removeprefix("*.").split(".")
        return len(name) <= 253 and all(
            0 < len(label) <= 63
            and label.isascii()
            and label.replace("-", "a").isalnum()
            and not label.startswith("-")
            and not label.endswith("-")
            for label in labels
        )


def is_reachable(name: str) -> bool:
    """Whether others may reach a host by it: an IP address or a name, which an inner DNS may spell with `_`."""
    return not name.startswith("*") and is_host_name(name.replace("_", "a"))


def secret_problem(value: str, least: int = 1) -> str | None:
    """Why a key or token cannot travel in a request's header; None when it can. Never repeats the secret.

    Args:
        value: the secret.
        least: characters that it must have.
    """
    if not re.fullmatch(r"[!-~]*", value):
        return "a key is one line of letters, digits and signs, without spaces"
    return f"a key has at least {least} characters" if len(value) < least else None


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


def extra(field: FieldInfo, key: str) -> Any:
    """What `setting()` noted beside the field: `unit` or `secret`."""
    noted = field.json_schema_extra
    return noted.get(key) if isinstance(noted, dict) else None

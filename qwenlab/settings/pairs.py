"""Settings given on a command line as KEY=VALUE, the value in YAML."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from qwenlab.settings.loading import PREFIX, SettingsError, SettingsProblem


def from_pairs(pairs: Iterable[str]) -> dict[str, Any]:
    """`qwen_*` keys and decoded values; the prefix may be left out.

    Raises:
        SettingsError: a pair without a key or without `=`, or a value that is no YAML.
    """
    data: dict[str, Any] = {}
    problems = []
    for pair in pairs:
        key, mark, value = pair.partition("=")
        key = key.strip()
        if not mark or not key:
            lack = "the key" if mark else "'='"
            problems.append(SettingsProblem("", f"--set {pair}: {lack} is missing; write KEY=VALUE"))
            continue
        try:
            data[key if key.startswith(PREFIX) else PREFIX + key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            words = " ".join(str(getattr(error, "problem", None) or error).split())
            problems.append(SettingsProblem("", f"--set {pair}: the value is no YAML ({words})"))
    if problems:
        raise SettingsError(problems)
    return data

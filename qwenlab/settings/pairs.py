"""Settings given on a command line as KEY=VALUE, the value in YAML."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any, get_args

import yaml

from qwenlab.settings.loading import PREFIX, SettingsError, SettingsProblem
from qwenlab.settings.model import Settings


def _is_text(name: str) -> bool:
    field = Settings.model_fields.get(name)
    return field is not None and {str, type(None)} >= set(get_args(field.annotation) or (field.annotation,))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, date)) and not isinstance(value, bool)


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
            name = key.removeprefix(PREFIX)
            if name.lower().startswith(PREFIX) and name.lower().removeprefix(PREFIX) in Settings.model_fields:
                problems.append(SettingsProblem(key, f"no such setting; did you mean {name.lower()}?"))
                continue
            decoded = yaml.safe_load(value)
            # 3.12 and forty digits are numbers to YAML; a setting that is text takes them as they are written
            data[PREFIX + name] = value.strip() if _is_text(name) and _is_number(decoded) else decoded
        except yaml.YAMLError as error:
            words = " ".join(str(getattr(error, "problem", None) or error).split())
            problems.append(SettingsProblem("", f"--set {pair}: the value is no YAML ({words})"))
        except (RecursionError, ValueError) as error:  # nested too deep, or a number or date that Python does not take
            words = "it is nested too deep" if isinstance(error, RecursionError) else str(error).split(":")[0]
            problems.append(SettingsProblem("", f"--set {key}: the value cannot be read ({words})"))
    if problems:
        raise SettingsError(problems)
    return data

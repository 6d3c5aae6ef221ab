"""From a host's data to `Settings`, or to a list of problems that names key, file and the nearest valid key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from qwenlab.settings.fields import extra
from qwenlab.settings.foreign import meant
from qwenlab.settings.model import Settings
from qwenlab.settings.wording import worded

PREFIX = "qwen_"
DISTINCTIVE = frozenset(
    {
        "workload", "tensor_parallel", "pipeline_parallel", "data_parallel", "layer_split", "draft_tokens",
        "kv_cache_dtype", "engine_args", "engine_env", "served_model_names",
    }
)  # fmt: skip


@dataclass(frozen=True)
class SettingsProblem:
    """One wrong setting.

    Attributes:
        key: the `qwen_*` key, or empty when several keys contradict each other.
        text: what is wrong and what is allowed.
        where: the file that set the key, when known.
    """

    key: str
    text: str
    where: str | None = None

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.key}{place}: {self.text}" if self.key else f"{self.text}{place}"


class SettingsError(ValueError):
    """The host's settings cannot be used; `problems` holds every fault found, not only the first."""

    def __init__(self, problems: list[SettingsProblem]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(problem) for problem in problems))


def load(data: Mapping[str, Any], where: Mapping[str, str] | None = None) -> Settings:
    """Validate the `qwen_*` keys of `data` (all other keys are ignored).

    Args:
        data: a host's merged pyinfra data.
        where: file that set each key, for the messages.

    Raises:
        SettingsError: unknown key, wrong type, value out of range, or settings that contradict each other.
    """
    places = where or {}
    given = {key.removeprefix(PREFIX): value for key, value in data.items() if _ours(key)}
    known = Settings.model_fields
    problems = [
        SettingsProblem(PREFIX + name, _unknown(name, known), places.get(PREFIX + name))
        for name in sorted(given.keys() - known.keys())
    ]
    problems += [
        SettingsProblem(key, f"no such setting; did you mean {meant}?", places.get(key))
        for key in sorted(key for key in data if isinstance(key, str))
        if (meant := _meant(key, known)) is not None
    ]
    try:
        settings = Settings.model_validate({name: value for name, value in given.items() if name in known})
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            name = str(fault["loc"][0]) if fault["loc"] else ""
            key = PREFIX + name if name else ""
            text = worded(fault, secret=name in known and bool(extra(known[name], "secret")))
            problems.append(SettingsProblem(key, text, places.get(key) if key else _places_named(text, places)))
        raise SettingsError(problems) from None
    if problems:
        raise SettingsError(problems)
    return settings


def _ours(key: object) -> bool:
    """Whether it is a key of qwenlab's; pyinfra lets data have other keys than text."""
    return isinstance(key, str) and key.startswith(PREFIX)


def _places_named(text: str, places: Mapping[str, str]) -> str | None:
    """Where the keys that a contradiction names were set."""
    named = dict.fromkeys(places[key] for key in re.findall(rf"{PREFIX}\w+", text) if key in places)
    return ", ".join(named) or None


def _meant(key: str, known: Mapping[str, Any]) -> str | None:
    """The setting that a key without the prefix was to be: another case or dash, a misspelt prefix, or no prefix.

    Without the prefix only words that nothing but qwenlab uses count: an inventory may serve other deploys too, and
    `user`, `port` or `http_proxy` may be theirs.
    """
    if key.startswith(PREFIX):
        return None
    if key in DISTINCTIVE:
        return PREFIX + key
    prefix, _, name = key.lower().replace("-", "_").partition("_")
    if not name or not get_close_matches(prefix, [PREFIX.removesuffix("_")], cutoff=0.75):
        return None
    near = [name] if name in known else get_close_matches(name, known, n=1, cutoff=0.75)
    return PREFIX + near[0] if near else None


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    if name not in known and (foreign := meant(name.strip())) is not None:
        return f"no such setting; {foreign}"
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {PREFIX}{near[0]}?" if near else "; docs/settings.md lists every setting"
    return f"no such setting{hint}"

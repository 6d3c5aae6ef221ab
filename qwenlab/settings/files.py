"""What settings name instead of saying it: files on the control machine that hold secrets, keys and certificates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from qwenlab.settings.fields import secret_problem
from qwenlab.settings.loading import SettingsError, SettingsProblem


def text_of(path: str, key: str, where: Mapping[str, str]) -> str:
    """The text of the file that the setting `key` names; `where` says which file set it.

    Raises:
        SettingsError: it cannot be read, is empty, or holds no text.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except OSError as error:
        words = f"{path}: {error.strerror}"
    except (RuntimeError, ValueError) as error:  # nobody is called so behind ~, a zero byte in the name, no text
        words = f"{path!r}: {'it is not UTF-8 text' if isinstance(error, UnicodeDecodeError) else error}"
    else:
        if text.strip():
            return text
        words = f"{path} is empty"
    raise SettingsError([SettingsProblem(key, words, where.get(key))])


def secret_of(value: str | None, path: str | None, key: str, where: Mapping[str, str], least: int = 1) -> str | None:
    """A secret that is given, or what its file holds: both are held to the same rule.

    Args:
        value: the secret itself.
        path: the file instead.
        key: the setting that names the file.
        where: the files that set the keys.
        least: characters that it must have.

    Raises:
        SettingsError: the file cannot be read, or what it holds cannot be a secret. The text does not repeat it.
    """
    if path is None:
        return value
    text = text_of(path, key, where).strip()
    if problem := secret_problem(text, least):
        raise SettingsError([SettingsProblem(key, f"{path}: {problem}", where.get(key))])
    return text

"""Files that settings name: read, or refused with key and place; never an exception that would stop the fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwenlab.settings import SettingsError
from qwenlab.settings.files import secret_of, text_of

WHERE = {"qwen_api_key_file": "group_data/all.py"}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{tmp}/absent", "No such file or directory"),
        ("{tmp}", "Is a directory"),
        ("{tmp}/empty", "is empty"),
        ("{tmp}/bytes", "not UTF-8 text"),
        ("~nobody-is-called-so/key", "home directory"),
        ("a\0b", "null"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_wrong_setting(path: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x80")
    with pytest.raises(SettingsError) as caught:
        text_of(path.format(tmp=tmp_path), "qwen_api_key_file", WHERE)
    (problem,) = caught.value.problems
    assert words in str(problem)
    assert "qwen_api_key_file (group_data/all.py)" in str(problem)


@pytest.mark.parametrize(
    ("text", "found"),
    [("0123456789abcdef\n", "0123456789abcdef"), ("\ufeff  0123456789  \r\n", "0123456789")],
)
def test_a_secret_is_what_its_file_holds(text: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(text, encoding="utf-8")
    assert secret_of(None, str(tmp_path / "key"), "qwen_api_key_file", WHERE, 8) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("first-key\nsecond-key\n", "one line"),
        ("key with spaces", "without spaces"),
        ("schlüssel-schlüssel", "letters, digits and signs"),
        ("short", "at least 8 characters"),
    ],
)
def test_a_secret_from_a_file_is_held_to_the_rule_of_a_given_one(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        secret_of(None, str(tmp_path / "key"), "qwen_api_key_file", WHERE, 8)
    said = str(caught.value)
    assert words in said
    assert text not in said

"""The documents of the settings follow the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwenlab.settings import Settings, document, load
from qwenlab.settings.document import GROUP_DATA, MARKDOWN, default_of, group_data, markdown
from qwenlab.settings.model import GROUPS


def test_every_setting_belongs_to_one_documented_group_and_has_a_meaning() -> None:
    owners = [name for group in GROUPS for name in document.own_fields(group)]
    assert sorted(owners) == sorted(Settings.model_fields)
    assert all(field.description for field in Settings.model_fields.values())


def test_defaults_satisfy_the_model() -> None:
    settings = load({})
    assert {name: getattr(settings, name) for name in Settings.model_fields} == {
        name: default_of(field) for name, field in Settings.model_fields.items()
    }


def test_the_documents_follow_the_model() -> None:
    assert MARKDOWN.read_text() == markdown(), "run: python -m qwenlab settings --write"
    assert GROUP_DATA.read_text() == group_data(GROUP_DATA.read_text()), "run: python -m qwenlab settings --write"


def test_uncommenting_the_whole_list_changes_nothing() -> None:
    lines = GROUP_DATA.read_text().split(document.MARKER)[1].splitlines()
    source = "\n".join(line.removeprefix("# ") for line in lines if line.startswith("# qwen_"))
    data: dict[str, Any] = {}
    exec(source, data)
    assert load(data) == load({})


def test_renewing_the_list_keeps_what_the_owner_wrote() -> None:
    mine = "qwen_port = 9000\n" + document.MARKER + "old list\n"
    assert group_data(mine).startswith("qwen_port = 9000\n" + document.MARKER)
    assert "old list" not in group_data(mine)


def test_a_stale_document_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(document, "ROOT", tmp_path)
    monkeypatch.setattr(document, "MARKDOWN", tmp_path / "settings.md")
    monkeypatch.setattr(document, "GROUP_DATA", tmp_path / "all.py")
    assert document.main(["--check"]) == 1
    assert "settings.md is stale" in capsys.readouterr().err
    assert document.main(["--write"]) == 0
    assert document.main(["--check"]) == 0

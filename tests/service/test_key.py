"""The API key that a host makes for itself."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.operations import service
from tests.operations import fake
from tests.operations.fake import commands


def test_a_key_is_long_and_travels_on_stdin_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    service.lab_key.cache_clear()
    (line, content), (shown, key) = _run(monkeypatch, {})
    assert len(key) >= 43
    assert content.strip() == key
    assert key not in line
    assert "chmod 600" in line
    assert shown == "shown"


def test_every_host_of_a_run_gets_the_same_key(monkeypatch: pytest.MonkeyPatch) -> None:
    service.lab_key.cache_clear()
    assert _run(monkeypatch, {})[0][1] == _run(monkeypatch, {})[0][1]


def _run(monkeypatch: pytest.MonkeyPatch, answers: dict[Any, Any]) -> list[tuple[str, str]]:
    def shown(command: Any) -> tuple[str, str]:
        if hasattr(command, "function"):
            return "shown", command.args[0]
        return command.get_raw_value(), str(command.connector_arguments.get("_stdin") or "")

    monkeypatch.setattr(fake, "_shown", shown)
    return commands(service.generated_key, answers)

"""The person's own hub login is used, and leaves for no hub but its own."""

from __future__ import annotations

import pytest

from tasks.settings import own_login


@pytest.mark.parametrize(
    ("endpoint", "environment", "token"),
    [
        ("https://huggingface.co", {}, "hf_mine"),
        ("http://mirror:8080", {}, None),
        ("http://mirror:8080", {"HF_ENDPOINT": "http://mirror:8080/"}, "hf_mine"),
        ("https://huggingface.co", {"HF_ENDPOINT": "http://mirror:8080"}, None),
    ],
)
def test_a_login_stays_with_its_hub(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, environment: dict[str, str], token: str | None
) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert own_login(endpoint) == token

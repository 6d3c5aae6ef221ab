"""How programs on a host reach its engines, and what they read from /metrics."""

from __future__ import annotations

import pytest

from qwenlab.remote.common.engine_api import address, total


@pytest.mark.parametrize(
    ("listens", "asked"),
    [
        (None, "http://127.0.0.1:8000"),
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("10.0.0.7", "http://10.0.0.7:8000"),
        ("::", "http://[::1]:8000"),
        ("fd00::7", "http://[fd00::7]:8000"),
    ],
)
def test_an_engine_is_asked_where_it_listens_and_on_loopback_when_that_is_everywhere(
    listens: str | None, asked: str
) -> None:
    assert address(listens, 8000) == asked


PAGE = """\
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0"} 12.0
vllm:generation_tokens_total{engine="1"} 1.5e+3
vllm:num_requests_running 3
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [("vllm:generation_tokens_total", 1512.0), ("vllm:num_requests_running", 3.0), ("vllm:generation_tokens", None)],
)
def test_a_metric_is_summed_over_its_labels(name: str, value: float | None) -> None:
    assert total(PAGE, name) == value

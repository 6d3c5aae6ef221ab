"""Every patch whose defect shows on one card: red on the released vLLM, green on the patched one."""

from __future__ import annotations

import pytest

from tests.gpu.both import WITHOUT, problem

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("check", WITHOUT)
@pytest.mark.parametrize("kind", ["stock", "patched"])
def test_on_a_card(kind: str, check: str) -> None:
    assert problem(check, kind) is None

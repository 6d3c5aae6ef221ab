"""Who the commands run as is asked of the kernel, not of a variable."""

from __future__ import annotations

import pytest
from pyinfra.api.exceptions import FactProcessError

from qwenlab.facts.host_base import UserId


def test_the_id_is_asked_of_id() -> None:
    assert UserId().command() == "id -u"
    assert UserId().process(["0"]) == 0
    assert UserId().process(["1000"]) == 1000


@pytest.mark.parametrize("output", [[], ["root"], [""]])
def test_anything_else_fails_that_host_alone(output: list[str]) -> None:
    with pytest.raises(FactProcessError, match="id -u"):
        UserId().process(output)

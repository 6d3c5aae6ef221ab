"""Answers of the host's own programs: JSON, and an odd one fails that host alone. And what they wrote into files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pyinfra.api.exceptions import FactProcessError

Kept = TypeVar("Kept", bound=BaseModel)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Around the reading of an answer; `what` it tells, in words.

    Raises:
        FactProcessError: whatever was read there was not of the shape that was expected.
    """
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FactProcessError(f"{what} could not be read: {error}") from error


def value_of(output: list[str], kind: type = object) -> Any:
    """The one JSON value that a program printed, over one line or many.

    Raises:
        ValueError: it is no JSON; TypeError: it is not of that kind.
    """
    value = json.loads("\n".join(output))
    if not isinstance(value, kind):
        raise TypeError(f"it is no {kind.__name__}")
    return value


def kept_record(output: list[str], kind: type[Kept]) -> Kept | None:
    """What a file on the host holds; None when it is missing or damaged: whoever keeps it writes it anew."""
    try:
        return kind.model_validate_json("\n".join(output))
    except ValidationError:
        return None

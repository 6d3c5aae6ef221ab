"""The base of what is read from files and written into them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A value that does not change, and takes no field that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

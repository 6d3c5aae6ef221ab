"""The other way round: the longest context and the most seats that fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from qwenlab.planner.catalogue import checkpoints
from qwenlab.planner.memory.budget import budget
from qwenlab.planner.memory.config import config_of
from qwenlab.planner.memory.pool import longest_context
from qwenlab.planner.shape import EngineShape


@dataclass(frozen=True)
class Largest:
    """The limits of a shape's cards.

    Attributes:
        max_model_len: longest context that one request may have, at most the model's own; 0 when nothing fits.
        max_num_seqs: seats of the shape's own length.
        seats_of: seats by length in tokens, for a table.
    """

    max_model_len: int
    max_num_seqs: int
    seats_of: tuple[tuple[int, int], ...]


LENGTHS = (4096, 16_384, 32_768, 65_536, 131_072, 262_144)


def largest(shape: EngineShape) -> Largest:
    """The longest `max_model_len` for this shape, and its seats at several lengths."""
    longest = replace(shape, max_model_len=checkpoints()[shape.checkpoint].geometry.max_model_len)
    result = budget(longest)
    if result.pool is None:
        return Largest(0, 0, ())
    pool = result.pool
    length = longest_context(config_of(longest), pool.num_blocks)
    seats = tuple((tokens, pool.seats(tokens)) for tokens in LENGTHS if tokens <= length)
    own = pool.seats(shape.max_model_len) if shape.max_model_len <= length else 0
    return Largest(length, own, seats)

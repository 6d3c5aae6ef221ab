"""Where a check has nothing to say."""

from __future__ import annotations


class Elsewhere(Exception):
    """The defect needs another card than this one."""

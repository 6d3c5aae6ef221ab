"""The CPU tier for KV blocks."""

from __future__ import annotations

from probes.registry import Surroundings  # noqa: F401

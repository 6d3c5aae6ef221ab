"""The rules: one table from an engine's shape to arguments, variables, patches and reasons.

To add "this card needs that variable", write one `Rule` in the module of its topic; docs/rules.md is generated from it.
"""

from __future__ import annotations

from qwenlab.planner.rules import (
    attention,
    communication,
    host,
    kernels,
    memory,
    patches,
    placement,
    serving,
    speculation,
)
from qwenlab.planner.rules.context import Context
from qwenlab.planner.rules.left_out import LEFT_OUT
from qwenlab.planner.rules.limits import LIMITS, violations
from qwenlab.planner.rules.links import peer_access
from qwenlab.planner.rules.model import Effect, LeftOut, Rule, ShapeRule, Topic

TABLE: tuple[Rule, ...] = (
    # the order is that of the arguments in the engine's YAML
    *serving.RULES,
    *placement.RULES,
    *memory.RULES,
    *attention.RULES,
    *speculation.RULES,
    *kernels.RULES,
    *communication.RULES,
    *host.RULES,
    *patches.RULES,
)

__all__ = [
    "LEFT_OUT",
    "LIMITS",
    "TABLE",
    "Context",
    "Effect",
    "LeftOut",
    "Rule",
    "ShapeRule",
    "Topic",
    "peer_access",
    "violations",
]

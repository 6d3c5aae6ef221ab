"""docs/rules.md, generated from the table: `python -m qwenlab rules [--write FILE | --check FILE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from qwenlab.markdown import table
from qwenlab.output import write_text
from qwenlab.planner.rules import LEFT_OUT, LIMITS, TABLE, Rule, Topic
from qwenlab.planner.rules.overrides import TRAPS

HEAD = """\
# Rules

Generated from `qwenlab/planner/rules/` by `python -m qwenlab rules --write docs/rules.md`; do not edit.

Every argument, variable and patch of a plan comes from one of these rules, and the plan names it
(`python -m qwenlab plan --from FILE --explain`). To add one, write an entry in the module of its topic:
an id, the condition, the effect, one sentence, its source and how it is known to hold.

Evidence: *measured* (on hardware, by the source or in vLLM's own code), *field report* (seen by a user, not repeated),
*derived* (follows from code or arithmetic).
"""
LEFT_OUT_HEAD = """
## Left out

What the sources state and no plan does, with the reason.

"""
TRAPS_HEAD = """
## Forced values that are warned about

`qwen_engine_args` and `qwen_engine_env` win over every rule; the plan then says what it would have set. These values
are known to hurt and add a warning.

"""
LIMITS_HEAD = """
## Limits of a layout

The search drops every layout that breaks one of these.

"""


def text() -> str:
    """The whole document."""
    parts = [HEAD]
    for topic in Topic:
        rules = [rule for rule in TABLE if rule.topic is topic]
        if rules:
            parts += [
                f"\n## {topic.value}\n\n",
                _table(("rule", "when", "sets", "why", "evidence", "source"), map(_rule, rules)),
            ]
    limits = ((f"`{limit.id}`", limit.when, limit.because, limit.evidence.value, limit.source) for limit in LIMITS)
    parts += [LIMITS_HEAD, _table(("limit", "when", "why", "evidence", "source"), limits)]
    parts += [
        TRAPS_HEAD,
        _table(("name", "what happens", "source"), ((f"`{t.name}`", t.text, t.source) for t in TRAPS)),
    ]
    left_out = ((one.rule, one.source, one.why) for one in LEFT_OUT)
    parts += [LEFT_OUT_HEAD, _table(("rule", "stated by", "why it is left out"), left_out)]
    return "".join(parts)


def _rule(rule: Rule) -> tuple[str, ...]:
    sets = ", ".join(f"`{name}`" for name in rule.sets) or "nothing"
    return (f"`{rule.id}`", rule.when, sets, rule.because, rule.evidence.value, rule.source)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(table(head, rows)) + "\n"


def main(argv: list[str]) -> int:
    """Print, write or check the document."""
    parser = argparse.ArgumentParser(
        prog="python -m qwenlab rules", description="the table of planning rules as Markdown"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", metavar="FILE", help="write the document")
    action.add_argument("--check", metavar="FILE", help="exit 1 when the file differs from the table")
    options = parser.parse_args(argv)
    if options.write:
        write_text(options.write, text())
    elif options.check:
        if Path(options.check).read_text(encoding="utf-8") != text():
            print(f"{options.check} is out of date: python -m qwenlab rules --write {options.check}", file=sys.stderr)
            return 1
    else:
        print(text(), end="")
    return 0

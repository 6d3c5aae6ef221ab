"""docs/rules.md, generated from the table: `python -m qwenlab rules [--write FILE | --check FILE]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from qwenlab.output import write_text
from qwenlab.planner.rules import LEFT_OUT, LIMITS, TABLE, Topic
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

| rule | stated by | why it is left out |
|---|---|---|
"""
TRAPS_HEAD = """
## Forced values that are warned about

`qwen_engine_args` and `qwen_engine_env` win over every rule; the plan then says what it would have set. These values
are known to hurt and add a warning.

| name | what happens | source |
|---|---|---|
"""
LIMITS_HEAD = """
## Limits of a layout

The search drops every layout that breaks one of these.

| limit | when | why | evidence | source |
|---|---|---|---|---|
"""
RULES_HEAD = """
| rule | when | sets | why | evidence | source |
|---|---|---|---|---|---|
"""


def text() -> str:
    """The whole document."""
    parts = [HEAD, *(_topic(topic) for topic in Topic if any(rule.topic is topic for rule in TABLE))]
    parts.append(LIMITS_HEAD + "".join(map(_row, _limits())))
    parts.append(TRAPS_HEAD + "".join(_row((f"`{t.name}`", t.text, t.source)) for t in TRAPS))
    parts.append(LEFT_OUT_HEAD + "".join(_row((one.rule, one.source, one.why)) for one in LEFT_OUT))
    return "".join(parts)


def _topic(topic: Topic) -> str:
    rows = (
        (
            f"`{rule.id}`",
            rule.when,
            ", ".join(f"`{name}`" for name in rule.sets) or "nothing",
            rule.because,
            rule.evidence.value,
            rule.source,
        )
        for rule in TABLE
        if rule.topic is topic
    )
    return f"\n## {topic.value}\n{RULES_HEAD}" + "".join(map(_row, rows))


def _limits() -> Iterable[tuple[str, ...]]:
    return ((f"`{limit.id}`", limit.when, limit.because, limit.evidence.value, limit.source) for limit in LIMITS)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


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

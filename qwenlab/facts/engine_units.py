"""How the engines' units stand: state, and whether they run with the files that lie there now."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading

SCRIPT = r"""
word() { "$@" 2>/dev/null | head -n1 | grep . || echo unknown; }
reload() { word systemctl show -p NeedDaemonReload --value "$1"; }
echo "umbrella=$(word systemctl is-active qwen.service) $(word systemctl is-enabled qwen.service)" \
    "$(for unit in qwen.service qwen.slice qwen.target qwen-cards.service; do reload "$unit"; done |
        sort -u | grep -x yes || echo no)"
{ systemctl list-units --all --plain --no-legend 'qwen-engine@*.service' | awk '{print $1}'
  ls /etc/qwen/engines 2>/dev/null | sed -n 's/\(.*\)\.yaml$/qwen-engine@\1.service/p'
  for name in @NAMES@; do echo "qwen-engine@$name.service"; done; } | sort -u | while read -r unit; do
    name=${unit#qwen-engine@}; name=${name%.service}
    echo "engine=$name $(word systemctl is-active "$unit") $(reload "$unit")" \
        "$(word /usr/local/lib/qwen/fingerprint now "$name") $(word /usr/local/lib/qwen/fingerprint of "$name")"
done
true
"""


@dataclass(frozen=True)
class EngineUnit:
    """Attributes:
    state: systemd's word: active, inactive, failed, activating ...
    stale: it runs (or last ran) with other files than lie there now.
    """

    state: str
    stale: bool


@dataclass(frozen=True)
class UnitsState:
    """The umbrella and every engine that is loaded, configured or asked for."""

    active: bool
    enabled: bool
    needs_reload: bool
    engines: dict[str, EngineUnit]


def parse(lines: list[str]) -> UnitsState:
    """`UnitsState` from the script's output.

    Raises:
        ValueError: a line is not as the script writes it.
    """
    active = enabled = needs_reload = False
    engines: dict[str, EngineUnit] = {}
    for line in lines:
        key, _, value = line.strip().partition("=")
        words = value.split()
        if key == "umbrella":
            state, unit_file, reload = words
            active, enabled = state == "active", unit_file == "enabled"
            needs_reload = needs_reload or reload == "yes"
        elif key == "engine":
            name, state, reload, *prints = words
            needs_reload = needs_reload or reload == "yes"
            now, started_with = prints
            engines[name] = EngineUnit(state, now != started_with)
    return UnitsState(active, enabled, needs_reload, engines)


class EngineUnits(FactBase[UnitsState]):
    """`UnitsState` of a host."""

    def command(self, names: tuple[str, ...]) -> str:
        """`names`: engines that the plan asks for."""
        return SCRIPT.replace("@NAMES@", " ".join(shlex.quote(name) for name in names)).strip()

    def process(self, output: list[str]) -> UnitsState:
        """Parse; an odd answer fails this host alone."""
        with reading("the state of the units"):
            return parse(list(output))

    @staticmethod
    def default() -> UnitsState:
        """Nothing there."""
        return UnitsState(False, False, False, {})

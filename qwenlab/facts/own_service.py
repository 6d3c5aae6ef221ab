"""How a service that qwenlab runs as an instance of its own stands: its unit, and the files that it has loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading

# The unit notes in its runtime directory what it was started with and what it has loaded since, as digests.
_SCRIPT = r"""
word() { "$@" 2>/dev/null | head -n1 | grep . || echo unknown; }
mark() { cat "/run/qwen-@KEY@/$1" 2>/dev/null | cut -d' ' -f1 | grep . || echo none; }
name=qwen-@KEY@.service
unit=/etc/systemd/system/$name
[ -e "$unit" ] && there=yes || there=no
echo "@KEY@=$there $(word systemctl is-active $name) $(word systemctl is-enabled $name)" \
    "$(word systemctl show -p NeedDaemonReload --value $name)"
echo "started=$(mark started) $(cat "$unit" 2>/dev/null | sha256sum | cut -d' ' -f1)"
echo "loaded=$(mark loaded)" \
    "$(cat @FILES@ 2>/dev/null | sha256sum | cut -d' ' -f1)"
true
"""


@dataclass(frozen=True)
class OwnService:
    """Attributes:
    there: its unit file exists.
    restart: it does not run, or runs with another unit file.
    reload: it runs with other files than lie there.
    """

    there: bool = False
    active: bool = False
    enabled: bool = False
    restart: bool = True
    reload: bool = True


class OwnServiceFact(FactBase[OwnService]):
    """`OwnService` of a host, for the unit `qwen-<key>` and the files that it loads; `what` it is, for people."""

    key: ClassVar[str]
    what: ClassVar[str]
    files: ClassVar[tuple[str, ...]]

    def command(self) -> str:
        """One script."""
        return _SCRIPT.replace("@KEY@", self.key).replace("@FILES@", " ".join(self.files)).strip()

    def process(self, output: list[str]) -> OwnService:
        """Parse; an odd answer fails this host alone."""
        known = dict(line.strip().split("=", 1) for line in output if "=" in line)
        with reading(f"the state of {self.what}"):
            there, active, enabled, reload = known[self.key].split()
            started, unit = known["started"].split()
            loaded, files = known["loaded"].split()
        if there != "yes":
            return OwnService(active=active == "active")
        restart = active != "active" or started != unit or reload == "yes"
        return OwnService(True, active == "active", enabled == "enabled", restart, loaded != files)

    @staticmethod
    def default() -> OwnService:
        """Nothing there."""
        return OwnService()

"""The pyinfra fact: everything about a host in one remote command.

It shows the host as it is at its turn: ask it inside an operation's body after the driver was changed, not before.
"""

from __future__ import annotations

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase
from pyinfra.api.hiddenvalue import HiddenValue

from qwenlab.facts.answers import reading
from qwenlab.facts.gather import command
from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.recording import from_output
from qwenlab.host_inventory import HostInventory, ParseState


class GpuHost(FactBase[HostInventory]):
    """The host's inventory. Logs show a word instead of the 60 kB command; it needs no root, root sees more (ACS)."""

    def command(self) -> StringCommand:
        """One shell command, the same for every host."""
        return StringCommand(HiddenValue(command(), "(gather.sh with the NVML dump)"))

    def process(self, output: list[str]) -> HostInventory:
        """Raises `FactProcessError`, which fails this host only, when the output is cut or foreign."""
        with reading("the host's inventory"):
            return build_inventory(from_output("\n".join(output)))

    @staticmethod
    def default() -> HostInventory:
        """What is known of a host that answered nothing."""
        return HostInventory(parse=ParseState.ERROR)

"""The inventory that the running engines were planned from."""

from __future__ import annotations

from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import kept_record
from qwenlab.host_inventory import HostInventory

INVENTORY = "/etc/qwen/inventory.json"


class PlannedInventory(FactBase[HostInventory | None]):
    """What lies at /etc/qwen/inventory.json while an engine runs or starts; None otherwise."""

    def command(self) -> str:
        """Nothing is printed when no engine holds memory."""
        return f"systemctl is-active 'qwen-engine@*' | grep -q '^activ' && cat {INVENTORY} 2>/dev/null; true"

    def process(self, output: list[str]) -> HostInventory | None:
        """A damaged file counts as none: it is written anew with the next plan."""
        return kept_record(output, HostInventory)

    @staticmethod
    def default() -> HostInventory | None:
        """No engine runs."""
        return None


def without_own_use(now: HostInventory, planned: HostInventory | None) -> HostInventory:
    """`now` with the memory use of each card as it was before the engines of this host took theirs.

    Without this a second run would take its own engines for strangers on the cards, and plan around them.
    """
    if planned is None:
        return now
    before = {gpu.uuid: gpu.memory_used_mib for gpu in planned.gpus if gpu.uuid is not None}
    gpus = tuple(
        gpu.model_copy(update={"memory_used_mib": before[gpu.uuid]}) if gpu.uuid in before else gpu for gpu in now.gpus
    )
    return now.model_copy(update={"gpus": gpus})

"""The host's plan, made at an operation's turn: what it rests on (the driver) may have come earlier in the same run."""

from __future__ import annotations

from pyinfra.context import host

from qwenlab.driver.decision import Verdict, decide
from qwenlab.facts.driver_state import NvidiaDriver
from qwenlab.facts.host_base import HostBasics
from qwenlab.facts.host_fact import GpuHost
from qwenlab.facts.planned_inventory import PlannedInventory, without_own_use
from qwenlab.host_inventory import Driver, HostInventory, ParseState
from qwenlab.planner import plan
from qwenlab.planner.plan import HostPlan
from qwenlab.settings import Settings


def host_plan(settings: Settings) -> HostPlan:
    """What the current host shall serve."""
    return plan(host_inventory(settings), settings)


def expected_plan(settings: Settings) -> HostPlan:
    """The plan of the host as it will be once its driver works: one that is yet to be installed, or waits for a reboot,
    is no reason against the host. Cards are then known by their PCI ids."""
    inventory = host_inventory(settings)
    made = plan(inventory, settings)
    if made.status != "refused" or settings.engine == "cpu":
        return made
    if decide(host.get_fact(NvidiaDriver), settings).verdict is Verdict.LEAVE:
        return made
    cards = tuple(gpu.model_copy(update={"usable": True, "unusable_because": None}) for gpu in inventory.gpus)
    bare = {"gpus": cards, "driver": Driver(), "diagnoses": (), "parse": ParseState.OK}
    return plan(inventory.model_copy(update=bare), settings)


def host_inventory(settings: Settings) -> HostInventory:
    """The current host as the planner shall see it; the cpu engine needs no look at cards."""
    if settings.engine == "cpu":
        base = host.get_fact(HostBasics, paths=())
        return HostInventory(hostname=host.name, cpu_count=base.cpus, ram_total_gib=base.ram_gib)
    return without_own_use(host.get_fact(GpuHost), host.get_fact(PlannedInventory))

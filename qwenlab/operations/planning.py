"""The host's plan, made at an operation's turn: what it rests on (the driver) may have come earlier in the same run."""

from __future__ import annotations

from pyinfra.context import host

from qwenlab.facts.host_base import HostBasics
from qwenlab.host_inventory import HostInventory
from qwenlab.planner.cpu import plan_cpu
from qwenlab.planner.plan import HostPlan
from qwenlab.settings import Settings


def host_plan(settings: Settings) -> HostPlan:
    """What the current host shall serve."""
    return plan_cpu(_inventory(settings), settings)


def _inventory(settings: Settings) -> HostInventory:
    base = host.get_fact(HostBasics, paths=())  # room is no matter of the plan
    return HostInventory(hostname=host.name, cpu_count=base.cpus, ram_total_gib=base.ram_gib)

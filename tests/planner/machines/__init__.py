"""Named machines as inventories: what the tests of the planner, of its arguments and the bench plan for."""

from tests.planner.machines.build import machine
from tests.planner.machines.table import MACHINES, inventories

__all__ = ["MACHINES", "inventories", "machine"]

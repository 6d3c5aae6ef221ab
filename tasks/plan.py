"""Show what would run on a host, and why. Nothing on the host is changed."""

from __future__ import annotations

from pyinfra import logger
from pyinfra.context import host

from qwenlab.operations.host import refuse
from qwenlab.operations.planning import host_inventory, plan_of
from qwenlab.planner.explain import as_text
from qwenlab.settings import Settings
from tasks.settings import Desired


def show(desired: Desired) -> None:
    """Print the host's plan; a host that cannot be planned for fails, alone."""
    settings: Settings = desired.settings
    inventory = host_inventory(settings)
    made = plan_of(inventory, settings)
    for line in as_text(made, inventory).splitlines():
        logger.info(f"{host.print_prefix}{line}")
    if made.status == "refused":
        refuse(
            name="Refuse hosts that cannot be planned for",
            reasons=tuple(f"{refusal.code}: {refusal.text}" for refusal in made.refusals),
        )

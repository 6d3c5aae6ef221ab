"""Power limits on a host: a unit that sets them now and at every boot."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra import logger
from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from qwenlab.driver import power
from qwenlab.facts.card_power import CardPower
from qwenlab.facts.file_states import PathStates
from qwenlab.facts.unit_state import UnitState
from qwenlab.operations.paths import put
from qwenlab.planner.rules.host import advised_watts
from qwenlab.render import UNITS, RemoteFile
from qwenlab.settings import Settings


@operation()
def limit(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Each card has the power limit that the settings ask for, by UUID, and again after every boot.

    Without a wish, limits that an earlier run set go back to the cards' defaults.

    Args:
        settings: the host's settings.
    """
    path = f"{UNITS}/{power.UNIT}"
    cards = host.get_fact(CardPower)
    wanted = power.limits(cards, settings.power_limit_w, advised_watts)
    for note in wanted.notes:
        host.log(note, log_func=logger.warning)
    if not wanted.watts:
        if path in host.get_fact(PathStates, paths=(path,)):
            yield StringCommand("systemctl disable --quiet --now", power.UNIT)
            yield StringCommand("rm -f", QuoteString(path), "&& systemctl daemon-reload")
        else:
            host.noop("no power limit is asked for")
        return
    changed = yield from put({path: RemoteFile(power.unit(wanted))})
    if changed:
        yield StringCommand("systemctl daemon-reload")
    now = {card.uuid: card.limit_w for card in cards}
    in_force = all(now[uuid] == watts for uuid, watts in wanted.watts.items())
    if changed or not in_force or host.get_fact(UnitState, unit=power.UNIT) != "enabled active":
        yield StringCommand("systemctl enable --quiet", power.UNIT)
        yield StringCommand(
            f"systemctl restart {power.UNIT} || {{ journalctl --no-pager -o cat -n 5 -u {power.UNIT} >&2; exit 1; }}"
        )
    else:
        host.noop("every card has its power limit")

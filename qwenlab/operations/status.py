"""How each host serves; a host that does not serve as asked fails, so that the exit code tells monitoring."""

from __future__ import annotations

from collections.abc import Callable, Generator

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from qwenlab.engine.release import BuildStep
from qwenlab.facts.engine_units import EngineUnits
from qwenlab.facts.file_states import PathStates
from qwenlab.facts.gateway import Gateway
from qwenlab.facts.host_status import HostStatus
from qwenlab.facts.monitoring import Prometheus
from qwenlab.facts.own_service import OwnServiceFact
from qwenlab.facts.unit_state import UnitRun, UnitRuns
from qwenlab.gateway.files import UNIT as GATEWAY_UNIT
from qwenlab.gateway.files import gateway_files
from qwenlab.monitoring.files import CARDS_UNIT, NODE_UNIT, card_files, watcher_files
from qwenlab.monitoring.files import UNIT as PROMETHEUS_UNIT
from qwenlab.operations.engine import engine_state, wanted_release
from qwenlab.operations.patch import with_series
from qwenlab.operations.paths import stale
from qwenlab.operations.planning import host_plan
from qwenlab.planner.measured import PLAY
from qwenlab.planner.plan import HostPlan
from qwenlab.programs import programs
from qwenlab.render import render, units_of
from qwenlab.service.report import Report, Service
from qwenlab.settings import Settings

# (for people, its unit, whether it is asked for)
SERVICES: tuple[tuple[str, str, Callable[[Settings], bool]], ...] = (
    ("gateway", GATEWAY_UNIT, lambda settings: settings.serve and settings.gateway),
    ("Prometheus", PROMETHEUS_UNIT, lambda settings: settings.prometheus),
    ("figures of the cards", CARDS_UNIT, lambda settings: bool(card_files(settings))),
)
# units that note what they were started with and have loaded
LOADED: dict[str, type[OwnServiceFact]] = {GATEWAY_UNIT: Gateway, PROMETHEUS_UNIT: Prometheus}


@operation(is_idempotent=False)
def report(settings: Settings, steps: tuple[BuildStep, ...] | None = None) -> Generator[PyinfraCommand, None, None]:
    """Print it. Nothing is changed.

    Args:
        settings: the host's settings.
        steps: as given to `engine.release`; None where they are not known: releases are then not compared.
    """
    services, notes = _services(settings)
    watching = {**(watcher_files(settings) if settings.prometheus else {}), **card_files(settings)}
    if not settings.serve:
        states = host.get_fact(PathStates, paths=tuple(watching))
        made = Report({}, stale(watching, states), [], notes, services, serves=False)
        yield FunctionCommand(_print, [made, settings.status_json], {})
        return
    plan = host_plan(settings)
    planned = {**programs(settings), **render(plan, settings), **gateway_files(plan, settings)}
    files = {**watching, **(planned if plan.status == "planned" else {})}
    states = host.get_fact(PathStates, paths=tuple(files))
    status = host.get_fact(HostStatus)
    made = Report(
        status,
        stale(files, states),
        [engine.name for engine in plan.engines],
        [
            *(one.text for one in plan.refusals),
            *_measurements(plan),
            *_drift(settings, plan, steps, status.get("release")),
            *notes,
        ],
        services,
    )
    yield FunctionCommand(_print, [made, settings.status_json], {})


def _services(settings: Settings) -> tuple[list[Service], list[str]]:
    """The services beside the engines that are asked for, and what a deploy would change about them."""
    runs = host.get_fact(UnitRuns, units=tuple(unit for _, unit, _ in SERVICES))
    found, notes = [], []
    for name, unit, asked in SERVICES:
        run = runs.get(unit, UnitRun())
        if asked(settings):
            service = Service(name, unit, run.state, run.result)
            found.append(service)
            if service.ok and not run.enabled:
                notes.append(f"drift: {unit} is not enabled: after a reboot it would not be started")
        elif run.state not in ("absent", "inactive"):
            notes.append(f"drift: {unit} is {run.state} and not asked for: a deploy would remove it")
    exporter = runs.get(NODE_UNIT, UnitRun())
    if settings.scraped_from and exporter.state != "absent":
        found.append(Service("node exporter", NODE_UNIT, exporter.state, exporter.result))
    for service in found:
        if service.ok and (fact := LOADED.get(service.unit)) is not None:
            loaded = host.get_fact(fact)
            if loaded.restart or loaded.reload:
                notes.append(f"drift: {service.unit} runs with other files than lie there: reload it, or deploy")
    return found, notes


def _measurements(plan: HostPlan) -> list[str]:
    """Measurements that no longer hold, or cannot be used."""
    return [text for text in plan.warnings if PLAY in text]


def _drift(settings: Settings, plan: HostPlan, steps: tuple[BuildStep, ...] | None, current: str | None) -> list[str]:
    """What a deploy would change beyond files: the release, engines that run with other files, engines too many."""
    patched, reasons = with_series(settings, steps or ())
    found = list(reasons)
    if current is not None and steps is not None and not reasons:
        wanted = wanted_release(settings, engine_state(settings), patched)
        found += (
            [f"drift: release {current} is current, a deploy would switch to {wanted}"] if current != wanted else []
        )
    names = [unit.name for engine in plan.engines for unit in units_of(engine, settings)]
    units = host.get_fact(EngineUnits, names=tuple(names))
    for name, unit in units.engines.items():
        if unit.state == "active" and unit.stale:
            found.append(f"drift: engine {name} runs with other files than lie there: restart it, or deploy")
        if name not in names and unit.state in ("active", "activating", "failed"):
            found.append(f"drift: engine {name} is {unit.state} and no longer planned: a deploy would remove it")
    if units.needs_reload:
        found.append("drift: systemd has not read the units that lie there: systemctl daemon-reload, or deploy")
    return found


def _print(state: State, host: Host, made: Report, as_json: bool) -> bool:
    if as_json:
        print(f'{{"host": "{host.name}", {made.as_json()[1:]}')
    else:
        for line in made.lines():
            logger.info(f"{host.print_prefix}{line}")
    return made.ok

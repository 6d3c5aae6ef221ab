"""Monitoring: what watched hosts offer, and the Prometheus that asks them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from weakref import WeakKeyDictionary

from pyinfra import logger
from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages

from qwenlab.facts.file_states import PathStates
from qwenlab.facts.monitoring import GatewayCertificates, Prometheus, TargetJobs
from qwenlab.facts.unit_state import UnitState
from qwenlab.gateway.certificate import names
from qwenlab.gateway.lab_ca import lab_ca
from qwenlab.monitoring.files import (
    CARDS_UNIT,
    CARDS_UNIT_FILE,
    CONFIG,
    DATA,
    FOLDER,
    NODE_DROP_IN,
    NODE_UNIT,
    PROVISIONING,
    TARGETS,
    UNIT,
    UNIT_FILE,
    USER,
    card_files,
    config,
    grafana_files,
    key_file,
    node_files,
    target_files,
    watcher_files,
)
from qwenlab.monitoring.targets import CERTIFICATES, KEYS, Target
from qwenlab.operations import apt, units
from qwenlab.operations.connection import address_of, connector_arguments
from qwenlab.operations.paths import put, put_with_folders, stale, write_checked
from qwenlab.operations.planning import host_plan
from qwenlab.operations.refusal import refusal
from qwenlab.render import API_KEY
from qwenlab.settings import Settings
from qwenlab.settings.loading import PREFIX

EXPORTER = "prometheus-node-exporter"

_reported: WeakKeyDictionary[State, dict[str, Target]] = WeakKeyDictionary()


@operation()
def node(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """A node exporter for those in `qwen_scraped_from`, with the cards' figures. One of the host's own stays as it is.

    Args:
        settings: the host's settings.
    """
    wanted = node_files(settings)
    ours = NODE_DROP_IN in host.get_fact(PathStates, paths=(NODE_DROP_IN,))
    if not wanted:
        if ours:
            yield StringCommand(f"systemctl disable --quiet --now {NODE_UNIT}; rm -f", NODE_DROP_IN)
        yield from _cards(settings)
        return
    installed = EXPORTER in host.get_fact(DebPackages)
    if not installed and settings.offline is not None:
        host.noop(f"no figures of the host: {EXPORTER} is not there, and qwen_offline lets nothing be fetched")
        return
    if ours or not installed:
        changed = yield from put_with_folders(wanted)
        if not installed:
            yield apt.update(timeout=settings.apt_lock_timeout_s)
            yield apt.install([EXPORTER], timeout=settings.apt_lock_timeout_s)
        state = host.get_fact(UnitState, unit=NODE_UNIT)
        if changed or state != "enabled active":
            yield StringCommand(
                f"systemctl daemon-reload && systemctl enable --quiet {NODE_UNIT} && systemctl restart {NODE_UNIT}"
            )
    yield from _cards(settings)


def _cards(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    wanted = card_files(settings)
    if not wanted:
        if CARDS_UNIT_FILE in host.get_fact(PathStates, paths=(CARDS_UNIT_FILE,)):
            yield units.remove(CARDS_UNIT, CARDS_UNIT_FILE)
        return
    changed = yield from put(wanted)
    if changed or host.get_fact(UnitState, unit=CARDS_UNIT) != "enabled active":
        yield StringCommand(
            f"systemctl daemon-reload && systemctl enable --quiet {CARDS_UNIT} && systemctl restart {CARDS_UNIT}"
        )


@operation()
def report(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Tell the run where this host's figures are; changes nothing.

    Args:
        settings: the host's settings.
    """
    if settings.serve and host.state.is_executing:
        _reported.setdefault(host.state, {})[host.name] = _target(settings)
    host.noop("told" if settings.serve else "it does not serve")
    yield from ()


def _target(settings: Settings) -> Target:
    address = address_of(settings)
    target = Target(
        host=host.name,
        address=address,
        engines={engine.name: engine.port for engine in host_plan(settings).engines},
        gateway=settings.endpoint_port if settings.gateway else None,
        reachable=bool(settings.scraped_from) if settings.gateway else not settings.engine_on_loopback,
        node=bool(settings.scraped_from) and EXPORTER in host.get_fact(DebPackages),
        keyed=settings.has_key,
        key=_key() if settings.has_key else None,
    )
    certificates = host.get_fact(GatewayCertificates) if settings.gateway_tls else ""
    if not certificates:
        return target
    known = names(certificates.encode())
    name = address if address in known else next(iter(known), address)
    trusted = certificates
    if settings.gateway_lab_ca is not None:
        trusted = (lab_ca(settings.gateway_lab_ca).folder / "ca.crt").read_text()
    return replace(target, server_name=name.replace("*", "qwen", 1), authority=trusted)


def _key() -> str | None:
    """The key as it lies on the host; not by a fact, since pyinfra can be told to print those."""
    done, output = host.run_shell_command(
        StringCommand("cat", API_KEY), print_output=False, print_input=False, **connector_arguments()
    )
    return output.stdout.strip() if done else None


@operation()
def install(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Prometheus from the distribution; an instance of the host's own stays as it is.

    Args:
        settings: the host's settings.
    """
    if not settings.prometheus or "prometheus" in host.get_fact(DebPackages):
        return
    if settings.offline is not None:
        yield refusal(["Prometheus is not installed, and qwen_offline lets nothing be fetched: install the package"])
        return
    timeout = settings.apt_lock_timeout_s
    installing = (apt.update(timeout=timeout), apt.install(["prometheus"], timeout=timeout))
    yield from apt.without_starting("prometheus.service", *installing)


@operation()
def watch(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Prometheus asks every serving host of the inventory. Hosts that this run left out keep what is known of them.

    Args:
        settings: the host's settings.
    """
    if not settings.prometheus:
        yield from _unwatch()
        return
    yield from _folders()
    reported = _reported.get(host.state, {})
    kept = host.get_fact(TargetJobs)
    serving = {Target(one.name, "", {}).file for one in host.state.inventory if one.data.get(f"{PREFIX}serve", True)}
    for name in sorted(kept.keys() - serving):
        places = (f"{TARGETS}/{name}.json", f"{KEYS}/{name}", f"{CERTIFICATES}/{name}.pem")
        yield StringCommand("rm -f", *(QuoteString(place) for place in places))
    jobs = {name: found for name, found in kept.items() if name in serving}
    for target in reported.values():
        jobs[target.file] = target.jobs(host.name)
        if not jobs[target.file]:
            host.log_styled(
                f"{target.host} is not watched: its engines listen on loopback; name this host's address in its "
                "qwen_scraped_from",
                fg="yellow",
                log_func=logger.warning,
            )
        yield from put({**target_files(target, host.name), **key_file(target)})
    yield from put_with_folders(watcher_files(settings))
    made = config(settings, jobs)
    states = host.get_fact(PathStates, paths=(CONFIG,))
    if stale({CONFIG: made}, states):
        yield write_checked(CONFIG, made, "promtool check config")
    yield from _grafana(settings)
    yield from _started()


def _folders() -> Generator[PyinfraCommand, None, None]:
    there = host.get_fact(PathStates, paths=(FOLDER, TARGETS, CERTIFICATES, KEYS))
    for folder in (FOLDER, TARGETS, CERTIFICATES):
        if folder not in there:
            yield StringCommand("install -d -m 755", folder)
    if KEYS not in there or there[KEYS].mode != "700":
        yield StringCommand("install -d -o", USER, "-g", USER, "-m 700", KEYS)


def _grafana(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    if PROVISIONING not in host.get_fact(PathStates, paths=(PROVISIONING,)):
        return
    files = watcher_files(settings)
    if (yield from put_with_folders({place: files[ours] for place, ours in grafana_files().items()})):
        yield StringCommand("systemctl try-restart grafana-server.service")


def _started() -> Generator[PyinfraCommand, None, None]:
    state = host.get_fact(Prometheus)
    tell = units.or_tell(UNIT, "Prometheus")
    if state.restart:
        yield StringCommand(f"systemctl daemon-reload && systemctl restart {UNIT}", tell)
    elif state.reload:
        yield StringCommand(f"systemctl reload {UNIT}", tell)
    if not state.enabled:
        yield StringCommand("systemctl enable --quiet", UNIT)


def _unwatch() -> Generator[PyinfraCommand, None, None]:
    """What was made goes; the figures stay for who wants them."""
    there = host.get_fact(PathStates, paths=(UNIT_FILE, FOLDER, *grafana_files()))
    if UNIT_FILE in there:
        yield units.remove(UNIT, UNIT_FILE)
        logger.info(f"{host.print_prefix}the figures stay in {DATA}")
    if FOLDER in there:
        yield StringCommand("rm -rf", FOLDER)
    for place in grafana_files():
        if place in there:
            yield StringCommand("rm -f", place)

"""The gateway on a host: refused before a change, checked before it is put in place, reloaded without a cut."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.facts.server import Users

from qwenlab.facts.checkpoints import HostAddresses
from qwenlab.facts.file_states import PathStates
from qwenlab.facts.gateway import Gateway, Holder, PortHolders
from qwenlab.gateway.files import CONFIG, FOLDER, PEM, UNIT, UNIT_FILE, USER, gateway_files
from qwenlab.gateway.lab_ca import LabCa, lab_ca, today
from qwenlab.operations import apt, units
from qwenlab.operations.paths import put, stale, write_checked
from qwenlab.operations.planning import expected_plan, host_plan
from qwenlab.operations.refusal import refusal
from qwenlab.planner.plan import HostPlan
from qwenlab.remote import LIBRARY
from qwenlab.render import RemoteFile
from qwenlab.settings import Settings
from qwenlab.settings.fields import is_host_name

PACKAGE = "haproxy"


@operation()
def check(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Refuse a host whose gateway could not listen; changes nothing.

    Args:
        settings: the host's settings.
    """
    if not settings.gateway:
        host.noop("no gateway is asked for")
        return
    port = settings.endpoint_port
    found = port_problems(expected_plan(settings), port, host.get_fact(PortHolders, port=port))
    if found:
        yield refusal(found)
    else:
        host.noop(f"port {port} is free for the gateway, or its own")


def port_problems(plan: HostPlan, port: int, holders: list[Holder]) -> list[str]:
    """Why the gateway cannot listen on `port`. An engine that leaves the port in this deploy is no reason."""
    taken = [one.name for one in plan.engines if one.port == port]
    if taken:
        return [
            f"the gateway's port {port} is that of engine {taken[0]}: choose another qwen_gateway_port, or another "
            "qwen_port for the engines"
        ]
    return [
        f"the gateway's port {port} is taken by {one.name} (process {one.process}"
        f"{f', {one.unit}' if one.unit != 'none' else ''}): end it, or choose another qwen_gateway_port"
        for one in holders
        if one.unit != UNIT and not one.unit.startswith("qwen-engine@")
    ]


@operation()
def install(settings: Settings, debs: Mapping[str, str] | None = None) -> Generator[PyinfraCommand, None, None]:
    """HAProxy from the distribution and a user for it. A HAProxy of the host's own stays as it is.

    Args:
        settings: the host's settings.
        debs: of a deploy without a network: package to its .deb on the host.
    """
    if not settings.gateway:
        return
    if PACKAGE not in host.get_fact(DebPackages):
        timeout = settings.apt_lock_timeout_s
        if debs is None:
            installing = [apt.update(timeout=timeout), apt.install([PACKAGE], timeout=timeout)]
        else:
            installing = [apt.install_files([debs[PACKAGE]], timeout=timeout)]
        yield from apt.without_starting("haproxy.service", *installing)
    if USER not in host.get_fact(Users):
        yield StringCommand("useradd --system --user-group --no-create-home --home-dir /nonexistent", USER)


@operation()
def configure(settings: Settings, pem: str | None) -> Generator[PyinfraCommand, None, None]:
    """The gateway's files, and no gateway where none is asked for. What runs goes on as it is.

    Args:
        settings: the host's settings.
        pem: certificate, chain and key that were given; None: none, or those of the lab's own authority.
    """
    if not settings.gateway:
        if host.get_fact(Gateway).there:
            yield units.remove(UNIT, UNIT_FILE, CONFIG)
        return
    if settings.gateway_lab_ca is not None:
        authority, names = lab_ca(settings.gateway_lab_ca), host_names(settings)
        if authority.known(host.name, names, today()) is None:
            yield FunctionCommand(_issue, [authority, names], {})
        pem = authority.known(host.name, names, today())
    states = host.get_fact(PathStates, paths=(FOLDER, CONFIG))
    folder = states.get(FOLDER)
    if folder is None or (folder.group, folder.mode) != (USER, "750"):
        yield StringCommand("install -d -o root -g", USER, "-m 750", FOLDER)
    if pem is not None:
        yield from put({PEM: RemoteFile(pem, "600", USER, USER)})
    files = gateway_files(host_plan(settings), settings)
    config = files.pop(CONFIG)
    if stale({CONFIG: config}, states):
        yield write_checked(CONFIG, config, "haproxy -c -q -f")
    if (yield from put(files)):
        yield StringCommand("systemctl daemon-reload")


@operation()
def activate(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """The gateway runs with the files that lie there; a plain re-run neither reloads nor restarts it.

    Args:
        settings: the host's settings.
    """
    if not settings.gateway:
        left = host.get_fact(PathStates, paths=(FOLDER,))
        if left or USER in host.get_fact(Users):
            yield StringCommand("rm -rf", FOLDER, f"&& {{ ! id -u {USER} >/dev/null 2>&1 || userdel {USER}; }}")
        return
    state = host.get_fact(Gateway)
    back = f"python3 {LIBRARY}/generation.py restore; " if settings.auto_rollback else ""
    tell = units.or_tell(UNIT, "the gateway", back)
    if not state.enabled:
        yield StringCommand("systemctl enable --quiet", UNIT)
    if state.restart:
        yield StringCommand(f"systemctl reset-failed {UNIT} 2>/dev/null; systemctl restart {UNIT}", tell)
    elif state.reload:
        yield StringCommand(_reload(), tell)
    if not settings.gateway_tls and PEM in host.get_fact(PathStates, paths=(PEM,)):
        yield StringCommand("rm -f", PEM)


def host_names(settings: Settings) -> tuple[str, ...]:
    """What clients may call the host: its name in the inventory, where SSH finds it, its addresses, and what is set."""
    known = [host.name, str(host.data.get("ssh_hostname") or host.name)]
    addresses = [address for address in host.get_fact(HostAddresses) if ":" not in address]
    listed = [*settings.gateway_names, *known, *addresses]
    return tuple(dict.fromkeys(name for name in listed if is_host_name(name)))


def _issue(state: State, host: Host, authority: LabCa, names: tuple[str, ...]) -> bool:
    try:
        authority.issue(host.name, names, today())
    except (OSError, ValueError) as error:
        host.log_styled(f"no certificate could be made in {authority.folder} (qwen_gateway_lab_ca): {error}", fg="red")
        return False
    host.log(f"a certificate was made; clients trust {authority.folder / 'ca.crt'}")
    return True


def _reload() -> str:
    """Shell that ends well once a new process serves: systemd does not wait for it, and HAProxy forgets a signal that
    comes while it starts."""
    return (
        f"main=$(systemctl show -p MainPID --value {UNIT}); before=$(pgrep -P $main); systemctl reload {UNIT} && "
        '{ for turn in $(seq 100); do pgrep -P $main | grep -qvxF "$before" && break; sleep 0.1; done; '
        'pgrep -P $main | grep -qvxF "$before"; }'
    )

"""The host base: refuse unfit hosts, packages, certificates."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from weakref import WeakKeyDictionary

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages

from qwenlab.facts.file_states import PathStates
from qwenlab.facts.host_base import HostBasics
from qwenlab.operations import apt
from qwenlab.operations.paths import put
from qwenlab.operations.planning import expected_plan
from qwenlab.operations.refusal import refusal
from qwenlab.preflight import Login, needs, problems
from qwenlab.render import ENGINE_UNIT, RemoteFile
from qwenlab.settings import Settings

PARTS_OF_A_MACHINE = 3  # machine id, boot id, node name
_machines: WeakKeyDictionary[State, dict[str, str]] = WeakKeyDictionary()


@operation(is_idempotent=False)
def refuse(reasons: tuple[str, ...]) -> Generator[PyinfraCommand, None, None]:
    """Refuse this host.

    Args:
        reasons: what is wrong and what to do.
    """
    yield refusal(reasons)


@operation()
def check(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Refuse this host when it cannot be served; changes nothing.

    Args:
        settings: the host's settings.
    """
    arguments: Mapping[str, object] = host.current_op_global_arguments or {}
    login = Login(
        sudo=bool(arguments.get("_sudo")),
        password=bool(arguments.get("_sudo_password") or arguments.get("_use_sudo_password")),
    )
    base = host.get_fact(HostBasics, paths=tuple(needs(settings)), _sudo=False)
    found = problems(base, settings, login, time.time())
    if (twin := first_named(host.state, base.machine, host.name)) != host.name:
        found.append(f"it is the same machine as {twin}, and two deploys at once would undo each other: name it once")
    if not found and (plan := expected_plan(settings)).status == "refused":
        found = [one.text for one in plan.refusals]
    if found:
        yield refusal(found)
    else:
        host.noop(f"{base.os_name}, {base.architecture}: fit to serve")


@operation()
def hand_down(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Give the caches and checkpoints of the engines' former user to the present one.

    Whoever has the home that the unit works in was that user. One that was removed may have got another number since,
    which would leave it without a right to its own files.

    Args:
        settings: the host's settings.
    """
    states = host.get_fact(PathStates, paths=(settings.home, ENGINE_UNIT))
    home = states.get(settings.home)
    if home is None or ENGINE_UNIT not in states or home.user in ("root", settings.user):
        host.noop("nothing belongs to a former service user")
        return
    place = QuoteString(settings.home)
    yield StringCommand(
        *("! grep -qxF", QuoteString(f"WorkingDirectory={settings.home}"), ENGINE_UNIT, "||"),
        *("chown -Rh", StringCommand("--from=$(stat -c %u ", place, ")", _separator="")),
        *(QuoteString(f"{settings.user}:{settings.user}"), place, QuoteString(settings.model_directory)),
    )


def first_named(state: State, machine: str, name: str) -> str:
    """Under which name of the inventory a machine came first in this run; `name` where it cannot be told."""
    if len(machine.split()) < PARTS_OF_A_MACHINE:
        return name
    return _machines.setdefault(state, {}).setdefault(machine, name)


@operation()
def packages(
    names: tuple[str, ...], lock_timeout_s: int, debs: Mapping[str, str] | None = None
) -> Generator[PyinfraCommand, None, None]:
    """Install distribution packages that are missing; apt's index is renewed only then.

    Args:
        names: package names.
        lock_timeout_s: how long to wait for another apt, in seconds.
        debs: of a deploy without a network: package to its .deb on the host; no index is asked then.
    """
    there = host.get_fact(DebPackages)
    missing = [name for name in names if name not in there]
    if not missing:
        host.noop(f"{', '.join(names)}: installed")
        return
    if debs is not None:
        if unknown := [name for name in missing if name not in debs]:
            yield refusal([f"there is no network (qwen_offline), and these packages are missing: {' '.join(unknown)}"])
            return
        # with what they depend on, as far as it is in the bundle; apt says what is not
        files = [path for name, path in debs.items() if name not in there]
        yield apt.install_files(files, timeout=lock_timeout_s)
        return
    yield apt.update(timeout=lock_timeout_s)
    yield apt.install(missing, timeout=lock_timeout_s)


@operation()
def certificates(wanted: dict[str, RemoteFile]) -> Generator[PyinfraCommand, None, None]:
    """Let the host trust further certificate authorities.

    Args:
        wanted: path below /usr/local/share/ca-certificates to PEM content.
    """
    changed = yield from put(wanted)
    if changed:
        yield StringCommand("update-ca-certificates")

"""The packages of the NVIDIA driver on a host. Each operation decides anew at its turn, on what it then finds."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator
from importlib.resources import files as package_files

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from qwenlab.driver import files, packages, words
from qwenlab.driver.decision import Decision, Verdict, after_install, decide, wrong_candidates
from qwenlab.driver.packages import Target
from qwenlab.driver.state import DriverState
from qwenlab.driver.tables import ARCHITECTURES, Distribution, distribution
from qwenlab.engine.release import proxies
from qwenlab.facts.driver_state import AptCandidates, NvidiaDriver
from qwenlab.facts.driver_text import branch as branch_of
from qwenlab.facts.file_states import PathStates
from qwenlab.operations import apt
from qwenlab.operations.paths import put
from qwenlab.operations.refusal import refusal
from qwenlab.settings import Settings


def look(settings: Settings) -> tuple[DriverState, Decision]:
    """The driver of the current host, asked now, and what is due."""
    state = host.get_fact(NvidiaDriver)
    return state, decide(state, settings)


def needed_row(state: DriverState) -> Distribution:
    """The distribution's row; a decision to install implies that there is one."""
    row = distribution(state.os, state.release)
    if row is None:
        raise LookupError(words.unknown_system(state))
    return row


@operation()
def repository(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """NVIDIA's repository for this release, trusted by one key; other sources of it are switched off.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    if decision.verdict is not Verdict.INSTALL or decision.target is None or decision.target.signed:
        host.noop("no packages are needed from NVIDIA's repository")
        return
    yield from add_repository(state, settings)


def add_repository(state: DriverState, settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Commands that make NVIDIA's repository an apt source of this host. For use inside operations."""
    row = needed_row(state)
    fingerprint = (settings.driver_key_fingerprint or row.fingerprint).upper()
    directory = ARCHITECTURES[state.architecture]
    keyring = files.keyring(fingerprint)
    timeout = settings.apt_lock_timeout_s
    for path in state.sources:
        if path != files.SOURCE and path != "/etc/apt/sources.list":
            # two entries for one repository with different keys stop every apt command
            yield StringCommand("mv -f", QuoteString(path), QuoteString(f"{path}.disabled"))
    if keyring not in host.get_fact(PathStates, paths=(keyring,)):
        yield StringCommand("install -d -m 755", files.KEYRINGS)
        job = {
            "url": f"{settings.driver_repository}/{row.repository}/{directory}/{row.key_file}",
            "fingerprint": fingerprint,
            "path": keyring,
        }
        yield StringCommand(
            *(f"{name}={shlex.quote(value)}" for name, value in proxies(settings).items()),
            *("python3 -", QuoteString(json.dumps(job))),
            _stdin=package_files("qwenlab.remote").joinpath("fetch_key.py").read_text(),
        )
    yield from put(
        {
            files.SOURCE: files.source(settings.driver_repository, row.repository, directory, fingerprint),
            files.PREFERENCES: files.preferences(),
        }
    )
    if stray := [path for path in state.keyrings if path != keyring]:
        yield StringCommand("rm -f", *(QuoteString(path) for path in stray))
    yield apt.update(timeout=timeout, only=files.SOURCE)


@operation()
def pin(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """The pinning package, in a transaction of its own: apt solves before a pin of the same transaction exists.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    target = decision.target
    if decision.verdict is not Verdict.INSTALL or target is None or target.signed:
        host.noop("nothing to pin")
        return
    name = packages.pinning_package(target)
    if name in state.installed:
        host.noop(f"{name} is installed")
        return
    # a module of the version before that does not build would stop this transaction too: apt configures it first
    if half := sorted(one for one, it in state.driver_packages.items() if it.status[1:2] in ("F", "U", "H")):
        yield StringCommand("dpkg --remove --force-depends --force-remove-reinstreq", *map(QuoteString, half))
    held = sorted(name for name in state.held if name.startswith(packages.PINNING))
    yield _released(held, apt.install([name], timeout=settings.apt_lock_timeout_s, more="--allow-downgrades"))


@operation()
def fetch(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Download all of the wanted driver before the first package is touched: a repository that goes away leaves all as
    it was, the held driver included.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    target, timeout = decision.target, settings.apt_lock_timeout_s
    if decision.verdict is not Verdict.INSTALL or target is None:
        host.noop("nothing to download")
        return
    names = packages.driver_set(target, needed_row(state), state.boot_kernel)
    yield apt.update(timeout=timeout)
    if state.broken:
        # left by a run that was cut off; what cannot be configured now is completed by the install
        yield StringCommand("DEBIAN_FRONTEND=noninteractive dpkg --configure -a || true")
    candidates = host.get_fact(AptCandidates, names=names)
    fabric = tuple(name for name in names if "fabricmanager" in name)
    if wrong := wrong_candidates(candidates, names, fabric, target):
        yield refusal(wrong)
        return
    more = f"--download-only {_downgrade(state, target)}".strip()
    download = apt.install(_wanted(state, target), timeout=timeout, more=more)
    yield _released(_held(state), download, moves=False)


@operation()
def install(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Headers, module and libraries of the wanted driver; judged by what lies there afterwards, not by apt's word.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    target = decision.target
    if decision.verdict is not Verdict.INSTALL or target is None:
        host.noop(f"nothing to install: {'; '.join(decision.reasons)}")
        return
    wanted = _wanted(state, target)
    more = _downgrade(state, target)
    yield _released(_held(state), apt.install(wanted, timeout=settings.apt_lock_timeout_s, more=more))
    if not target.signed:
        kernel = QuoteString(state.boot_kernel)
        yield StringCommand("modinfo -k", kernel, "nvidia >/dev/null 2>&1 || dkms autoinstall -k", kernel, "|| true")
    if problems := after_install(host.get_fact(NvidiaDriver), target):
        yield refusal(problems)


@operation()
def hold(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Nothing moves the driver unasked: the whole set is held, and unattended-upgrades passes it over.

    Acts where a run installed the driver, or where its owner already holds a part of it.

    Args:
        settings: the host's settings.
    """
    state, decision = look(settings)
    theirs = sorted(state.driver_packages)
    ours = state.managed or decision.verdict is Verdict.ACTIVATE
    if state.wsl or not theirs or not (ours or state.held & set(theirs)):
        host.noop("the driver was not installed by qwenlab: left as it is")
        return
    if ours:
        yield from put({files.UNATTENDED: files.unattended()})
    if free := [name for name in theirs if name not in state.held]:
        yield StringCommand("apt-mark hold", *(QuoteString(name) for name in free))
    else:
        host.noop(f"{len(theirs)} packages are held")


def _wanted(state: DriverState, target: Target) -> tuple[str, ...]:
    """The driver's packages, and before them what its module is built with."""
    names = packages.driver_set(target, needed_row(state), state.boot_kernel)
    build = () if target.signed else packages.headers(state.boot_kernel, state.installed, state.held)
    return (*build, *names)


def _downgrade(state: DriverState, target: Target) -> str:
    older = target.version is not None or target.branch < (branch_of(state.user_space) or 0)
    return "--allow-downgrades" if older else ""


def _held(state: DriverState) -> list[str]:
    """What an earlier run, or the owner, holds of the driver."""
    return sorted(name for name in state.held if packages.belongs(name) or name in state.driver_packages)


def _released(held: list[str], command: StringCommand, *, moves: bool = True) -> StringCommand:
    """The command with these packages not held. What did not move must stay: they are held again when the command
    fails, and whatever it answers if it `moves` nothing.

    apt's own option for that, --allow-change-held-packages, is no help: apt 3 keeps to the holds of packages that are
    needed and not named.
    """
    names = [QuoteString(name) for name in held]
    if not names:
        return command
    again = StringCommand("apt-mark hold", *names, ">/dev/null;")
    after = StringCommand("||", "{", again, "exit 1; }") if moves else StringCommand("; code=$?;", again, "exit $code")
    return StringCommand("apt-mark unhold", *names, ">/dev/null &&", command, after)

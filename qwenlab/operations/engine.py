"""The engine release on a host: uv, build, switch, prune."""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host
from pyinfra.facts.server import Arch

from qwenlab.bundle.source import Bundle
from qwenlab.engine.pins import pins
from qwenlab.engine.release import UV, BuildStep, build_job, choose_python, proxies, release_id, uv_job
from qwenlab.facts.engine_release import EngineReleases, EngineState
from qwenlab.operations.patch import with_series
from qwenlab.operations.refusal import refusal
from qwenlab.remote import LIBRARY
from qwenlab.settings import Settings


def engine_state(settings: Settings) -> EngineState:
    """uv, Pythons and releases of the current host, asked now."""
    return host.get_fact(EngineReleases, directory=settings.release_directory, uv=UV)


def wanted_release(settings: Settings, state: EngineState, steps: tuple[BuildStep, ...]) -> str:
    """The id of the release that the settings ask for on this host."""
    return release_id(settings, choose_python(settings, state.pythons), steps)


@operation()
def uv(settings: Settings, bundle: Bundle | None = None) -> Generator[PyinfraCommand, None, None]:
    """The pinned uv in /usr/local/bin; another version there is replaced.

    Args:
        settings: the host's settings.
        bundle: what a deploy without a network is made from.
    """
    wanted = pins().uv.version
    if engine_state(settings).uv == wanted:
        host.noop(f"uv {wanted} is there")
        return
    job = uv_job(settings, host.get_fact(Arch), bundle)
    yield StringCommand(
        *(f"{name}={shlex.quote(value)}" for name, value in proxies(settings).items()),
        *("python3", f"{LIBRARY}/fetch_uv.py"),
        _stdin=json.dumps(job),
    )


@operation()
def release(
    settings: Settings, steps: tuple[BuildStep, ...] = (), bundle: Bundle | None = None
) -> Generator[PyinfraCommand, None, None]:
    """A whole release below `<release_directory>/releases`; `current` is left as it is.

    Args:
        settings: the host's settings.
        steps: what to do with the installed packages before the release counts as whole, beside the patch series.
        bundle: what a deploy without a network is made from.
    """
    steps, reasons = with_series(settings, steps)
    if reasons:
        yield refusal(reasons)
        return
    state = engine_state(settings)
    python = choose_python(settings, state.pythons)
    name = release_id(settings, python, steps)
    if name in state.complete:
        host.noop(f"release {name} is whole")
        return
    job = build_job(settings, python, steps, bundle)
    yield StringCommand("python3", f"{LIBRARY}/build_release.py", _stdin=json.dumps(job))


@operation()
def switch(settings: Settings, steps: tuple[BuildStep, ...] = ()) -> Generator[PyinfraCommand, None, None]:
    """Let `current` point to the wanted release, by one rename.

    Args:
        settings, steps: as given to `release`.
    """
    steps, reasons = with_series(settings, steps)
    if reasons:
        yield refusal(reasons)
        return
    state = engine_state(settings)
    name = wanted_release(settings, state, steps)
    if state.current == name:
        host.noop(f"{name} is current")
        return
    link, fresh = f"{settings.release_directory}/current", f"{settings.release_directory}/.current.new"
    yield StringCommand(
        *("ln -sfn", QuoteString(f"releases/{name}"), QuoteString(fresh)),
        *("&& mv -T", QuoteString(fresh), QuoteString(link), "&& sync -f", QuoteString(settings.release_directory)),
    )


@operation()
def prune(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Remove releases beyond the current one and the newest `qwen_keep_releases` others.

    Args:
        settings: the host's settings.
    """
    state = engine_state(settings)
    if state.current is None:
        return
    others = [name for name in state.complete if name != state.current]
    for name in others[settings.keep_releases :]:
        path = f"{settings.release_directory}/releases/{name}"
        # its mark goes first: what a crash leaves of it counts as unfinished and is swept by the next build
        yield StringCommand("rm -f", QuoteString(f"{path}/release.json"), "&& rm -rf", QuoteString(path))

"""Checkpoints on a host: fetched whole, by repository and commit, from the hub, a peer or a disk.

The fetch itself is a unit (`checkpoint_units`) that needs nobody to wait for it: the next deploy follows it.
"""

from __future__ import annotations

import json
from collections.abc import Generator

from pyinfra.api.command import FunctionCommand, PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host

from qwenlab.engine.release import BuildStep
from qwenlab.facts.checkpoints import CheckpointState, CheckpointStates, HostAddresses, UnusedCheckpoints
from qwenlab.operations.checkpoint_job import base_of, checkpoints_of, job_of, unit_of
from qwenlab.operations.checkpoint_lab import Lab, Served, lab_of
from qwenlab.operations.checkpoint_progress import Fetch, follow
from qwenlab.operations.checkpoint_units import start_fetch, start_server, stop_server
from qwenlab.operations.connection import address_of, connector_arguments
from qwenlab.operations.engine import engine_state, wanted_release
from qwenlab.operations.patch import with_series
from qwenlab.operations.planning import host_plan
from qwenlab.operations.progress import amount
from qwenlab.operations.refusal import refusal
from qwenlab.planner.plan import Checkpoint
from qwenlab.remote import LIBRARY
from qwenlab.remote.generation import KEPT
from qwenlab.render import ETC
from qwenlab.settings import Settings


def whole_places(settings: Settings, wanted: list[Checkpoint]) -> frozenset[str]:
    """Places of those checkpoints that are whole on the current host, as far as `qwen_verify_models` looks."""
    places = {one.directory(settings.model_directory): one.place for one in wanted}
    if not places:
        return frozenset()
    found = host.get_fact(CheckpointStates, how=settings.verify_models, directories=tuple(places))
    return frozenset(place for path, place in places.items() if found.get(path, CheckpointState()).whole)


@operation()
def claim(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Tell the run which checkpoints this host needs and has; changes nothing.

    Args:
        settings: the host's settings.
    """
    planned = checkpoints_of(host_plan(settings))
    wanted = tuple(dict.fromkeys(base_of(one).place for one in planned))
    whole = whole_places(settings, [*map(base_of, planned), *planned])
    lab_of(host).claim(host.name, wanted, whole, host.get_fact(HostAddresses))
    host.noop(f"{len(whole.intersection(wanted))} of {len(wanted)} checkpoints are whole")
    yield from ()


@operation()
def fetch(
    settings: Settings,
    token: str | None,
    steps: tuple[BuildStep, ...] = (),
    from_peers: bool = False,
    python: str | None = None,
) -> Generator[PyinfraCommand, None, None]:
    """Every checkpoint of the host's plan that is not whole, fetched by the service user and prepared where planned.

    Args:
        settings: the host's settings.
        token: access token of the hub.
        steps: as given to `engine.release`, whose interpreter does the fetching.
        from_peers: with `qwen_model_source = 'peer'`, take what other hosts serve; otherwise only what this host
            fetches for all.
        python: another interpreter with huggingface_hub, aiohttp and numpy than the release's.
    """
    plan = host_plan(settings)
    if plan.status == "refused":
        yield refusal(one.text for one in plan.refusals)
        return
    wanted = checkpoints_of(plan)
    lab = lab_of(host)
    peers = settings.model_source == "peer"
    # digests are costly: among peers what `claim` has read counts
    whole = lab.whole.get(host.name, frozenset()) if peers else whole_places(settings, wanted)
    lacking = [one for one in wanted if one.place not in whole]
    foreign = {one for one in lacking if peers and not lab.has_its_own(host.name, base_of(one).place)}
    lacking = [one for one in lacking if (one in foreign) is from_peers]
    for one in wanted:
        if one not in lacking:
            host.noop(f"{one.repo}@{one.revision[:12]} is whole, or comes from a peer")
    if not lacking:
        return
    python, reasons = interpreter(settings, steps, python)
    if reasons:
        yield refusal(reasons)
        return
    for one in lacking:
        job = job_of(one, settings, token)
        if one in foreign:
            served = lab.served.get(base_of(one).place)
            if served is None:
                yield refusal([unserved(one, lab)])
                continue
            job |= {"endpoint": served.url, "manifest": served.manifest, "token": None, "source": "peer"}
        unit = unit_of(job["directory"])
        yield start_fetch(settings, python, unit, job)
        begun = Fetch(unit, job["status"], one.repo, job["deploy"])
        yield FunctionCommand(follow, [begun, connector_arguments()], {})


def interpreter(settings: Settings, steps: tuple[BuildStep, ...], given: str | None) -> tuple[str, tuple[str, ...]]:
    """The Python that was given, else that of the release that the host's plan asks for; reasons for a refusal."""
    if given is not None:
        return given, ()
    steps, reasons = with_series(settings, steps)
    release = "" if reasons else wanted_release(settings, engine_state(settings), steps)
    return f"{settings.release_directory}/releases/{release}/venv/bin/python", reasons


def unserved(checkpoint: Checkpoint, lab: Lab) -> str:
    """Words for a host that was to be given a checkpoint by another."""
    source = lab.source(base_of(checkpoint).place)
    return (
        f"{checkpoint.repo} was to come from {source}, which failed in this run: see what it says above, mend it and "
        "deploy again, leave it out with --exclude, or set qwen_model_source = 'hub'"
    )


@operation()
def serve(
    settings: Settings, steps: tuple[BuildStep, ...] = (), python: str | None = None
) -> Generator[PyinfraCommand, None, None]:
    """Serve what other hosts of the run need from this one, read-only and to their addresses alone.

    Args:
        settings: the host's settings.
        steps, python: as given to `fetch`.
    """
    lab = lab_of(host)
    places = {place for places in lab.wanted.values() for place in places}
    mine = sorted(place for place in places if lab.source(place) == host.name and lab.lacking(place))
    if not mine:
        host.noop("no other host needs a checkpoint from this one")
        return
    directories = tuple(f"{settings.model_directory}/{place}" for place in mine)
    found = host.get_fact(CheckpointStates, how="off", directories=directories)
    address = address_of(settings)
    address = f"[{address}]" if ":" in address else address
    for place, directory in zip(mine, directories, strict=True):
        state = found.get(directory, CheckpointState())
        if state.manifest is not None:
            lab.served[place] = Served(host.name, f"http://{address}:{settings.peer_port}", state.manifest)
    python, reasons = interpreter(settings, steps, python)
    if reasons:
        yield refusal(reasons)
        return
    clients = sorted({name for place in mine for name in lab.lacking(place)})
    job = {
        "models": settings.model_directory,
        "directories": mine,
        "address": "",
        "port": settings.peer_port,
        "allowed": sorted({one for name in clients for one in lab.addresses[name]}),
    }
    yield from start_server(settings, python, job)


@operation()
def stop_serving(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """End the serving: it is there for the deploy alone.

    Args:
        settings: the host's settings.
    """
    lab = lab_of(host)
    if not any(one.host == host.name for one in lab.served.values()):
        host.noop("this host serves no checkpoints")
        return
    yield stop_server()


@operation()
def prune(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Remove the revisions that no plan, no kept generation and no running engine uses; each is named first.

    Args:
        settings: the host's settings.
    """
    places = (settings.model_directory, f"/{KEPT}", ETC)
    models, generations, etc = places
    found = host.get_fact(UnusedCheckpoints, models=models, generations=generations, etc=etc)
    if not found:
        host.log("nothing to remove: every checkpoint is in use")
        return
    for one in found:
        half = "" if one.whole else ", unfinished"
        host.log(f"unused: {one.path} ({amount(one.bytes)} to free{half})")
    yield StringCommand(
        f"cd {LIBRARY} && python3 -B -m qwenlab.remote.checkpoint.prune",
        *(QuoteString(place) for place in places),
        "remove",
        _stdin=json.dumps([one.path for one in found]),
    )

"""Deploying from a bundle alone: does it fit, what of it does the host lack, bring that there, leave nothing behind."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from pyinfra.api.command import FunctionCommand, PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host
from pyinfra.facts.deb import DebPackages
from pyinfra.facts.server import Arch

from qwenlab.bundle.manifest import MANIFEST, BundledFile, BundleError, parse
from qwenlab.bundle.source import (
    KERNEL_STAMP,
    Bundle,
    Lacking,
    Target,
    deb_names,
    model_directory,
    needed,
    unfit,
)
from qwenlab.engine.pins import pins
from qwenlab.engine.release import BuildStep, choose_python
from qwenlab.facts.bundle import BundleFiles, BundleText, HostRuntime
from qwenlab.facts.host_base import HostBasics
from qwenlab.operations import bundle_transfer as transfer
from qwenlab.operations.checkpoint import whole_places
from qwenlab.operations.checkpoint_job import base_of, checkpoints_of
from qwenlab.operations.connection import connector_arguments
from qwenlab.operations.engine import engine_state, wanted_release
from qwenlab.operations.patch import with_series
from qwenlab.operations.planning import expected_plan
from qwenlab.operations.refusal import refusal
from qwenlab.planner.plan import Checkpoint
from qwenlab.preflight import needs, room_problems
from qwenlab.remote.checkpoint.offline import layouts
from qwenlab.settings import Settings

GIB = 2**30


def on_host(directory: str) -> Bundle:
    """The bundle that lies on the current host.

    Raises:
        BundleError: there is none, or one that this version cannot read.
    """
    text = host.get_fact(BundleText, path=f"{directory}/{MANIFEST}")
    if not text.strip():
        raise BundleError(
            f"{directory} on the host holds no {MANIFEST}: it is not a bundle, or not mounted, or cannot be read "
            "(pieces are put together there with their own join.py)"
        )
    manifest = parse(text, f"{directory}/{MANIFEST}")
    return Bundle(manifest, directory, kernels=stamp_of(host.get_fact(BundleText, path=f"{directory}/{KERNEL_STAMP}")))


def stamp_of(text: str) -> dict[str, Any]:
    """The stamp of prebuilt kernels; empty when it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True)
class Need:
    """What the current host needs of a bundle.

    Attributes:
        files: all of it; `missing`: those that do not lie there yet.
        absent: why the bundle cannot give it.
    """

    files: tuple[BundledFile, ...]
    missing: tuple[BundledFile, ...]
    absent: tuple[str, ...] = ()


def need_of(settings: Settings, bundle: Bundle, steps: tuple[BuildStep, ...], packages: tuple[str, ...]) -> Need:
    """What the current host lacks of a release, its checkpoints and Debian packages, asked now."""
    state = engine_state(settings)
    steps, _ = with_series(settings, steps)
    lacking = Lacking(
        uv=state.uv != pins().uv.version,
        release=wanted_release(settings, state, steps) not in state.complete,
        python=bundle.manifest.python not in state.pythons,
        debs=tuple(name for name in packages if name not in host.get_fact(DebPackages)),
        checkpoints=lacking_checkpoints(settings),
    )
    absent, places = [], []
    for one in lacking.checkpoints:
        place = model_directory(bundle.manifest, one, layouts(one.repo, one.revision))
        if settings.model_path != f"{bundle.directory}/models":
            continue  # the checkpoints come from a place of their own
        if place is None:
            absent.append(without_checkpoint(one, bundle))
        else:
            places.append(place)
    if unknown := [name for name in lacking.debs if name not in deb_names(bundle)]:
        absent.append(without_debs(unknown))
    if lacking.uv and not bundle.below("uv/"):
        absent.append("the bundle carries no uv: make it again with python -m qwenlab bundle")
    files = needed(bundle, lacking, places)
    there = host.get_fact(BundleFiles, directory=bundle.directory)
    return Need(files, tuple(file for file in files if there.get(file.path) != file.size), tuple(absent))


def lacking_checkpoints(settings: Settings) -> tuple[Checkpoint, ...]:
    """The repositories' own checkpoints that the host's plan still needs."""
    wanted = checkpoints_of(expected_plan(settings))
    bases = [base_of(one) for one in wanted]
    whole = whole_places(settings, [*wanted, *bases])
    pairs = zip(wanted, bases, strict=True)
    return tuple(dict.fromkeys(base for one, base in pairs if not whole & {one.place, base.place}))


def without_checkpoint(checkpoint: Checkpoint, bundle: Bundle) -> str:
    """Words for a checkpoint of the plan that the bundle lacks."""
    others = sorted({"/".join(file.path.split("/")[1:3]) for file in bundle.below("models/")})
    there = f"it has {', '.join(others)}" if others else "it has none"
    return (
        f"the plan serves {checkpoint.repo} at commit {checkpoint.revision}, which the bundle lacks ({there}): "
        f"make the bundle with --checkpoint {checkpoint.repo}@{checkpoint.revision}, or choose one that is in it "
        "(qwen_checkpoint), or name a directory on the host (qwen_model_source = 'path')"
    )


def without_debs(names: list[str]) -> str:
    """Words for Debian packages that neither host nor bundle has."""
    listed = " ".join(names)
    return (
        f"the host lacks Debian packages that the bundle does not carry: {listed}. Install them, or make the bundle "
        "with --debs DIR; a bare machine of the same release fills DIR by: "
        f"apt-get -o Dir::Cache::archives=DIR --download-only install {listed}"
    )


@operation()
def check(
    settings: Settings,
    bundle: Bundle,
    steps: tuple[BuildStep, ...],
    packages: tuple[str, ...],
    by_hand: tuple[str, ...] = (),
) -> Generator[PyinfraCommand, None, None]:
    """Refuse a host that the bundle cannot serve; changes nothing.

    Args:
        settings: the host's settings.
        bundle: what it is deployed from.
        steps: as given to `engine.release`.
        packages: Debian packages that the host shall have.
        by_hand: those that a bundle does not bring.
    """
    state = engine_state(settings)
    python = choose_python(settings, state.pythons)
    runtime = host.get_fact(HostRuntime, python=python.request)
    target = Target(host.get_fact(Arch), runtime.glibc, tuple(state.pythons), runtime.packages)
    if reasons := unfit(bundle, settings.release, settings.python, target):
        yield refusal(reasons)
        return
    need = need_of(settings, bundle, steps, packages)
    reasons = [*need.absent]
    if unknown := [name for name in by_hand if name not in host.get_fact(DebPackages)]:
        reasons.append(
            f"the settings ask for {' and '.join(unknown)}, which no bundle brings: install that on the host first, or "
            "take qwen_scraped_from and qwen_prometheus out"
        )
    if bundle.local is not None:
        gib = sum(file.size for file in need.missing) / GIB
        base = host.get_fact(HostBasics, paths=tuple(needs(settings)))
        reasons += room_problems(base, settings, {settings.release_directory: gib})
        reasons += [f"{bundle.local}/{text}" for text in transfer.local_damage(bundle.local, need.missing)]
    else:
        reasons += [f"{bundle.directory}/{file.path} is missing, or has another size" for file in need.missing]
    if reasons:
        yield refusal(reasons)
    elif bundle.local is None and need.files:
        places = sorted({place_of(file.path) for file in need.files})
        yield FunctionCommand(transfer.check, [bundle.directory, places, connector_arguments()], {})
    else:
        host.noop(f"the bundle fits; {len(need.files)} of its files are needed")


def place_of(path: str) -> str:
    """The directory of a bundle that a file is checked with: the first name of its path."""
    return f"{path.split('/', 1)[0]}/"


@operation()
def carry(
    settings: Settings, bundle: Bundle, steps: tuple[BuildStep, ...], packages: tuple[str, ...]
) -> Generator[PyinfraCommand, None, None]:
    """Bring to the host what it lacks of a bundle that lies on the control machine.

    Args:
        settings, bundle, steps, packages: as given to `check`.
    """
    if bundle.local is None:
        host.noop(f"the bundle lies on the host, at {bundle.directory}")
        return
    need = need_of(settings, bundle, steps, packages)
    if not need.missing:
        host.noop("the host needs nothing of the bundle that is not there")
        return
    yield FunctionCommand(transfer.carry, [bundle, need.files, connector_arguments()], {})


@operation()
def tidy(bundle: Bundle) -> Generator[PyinfraCommand, None, None]:
    """Remove what was carried: release and checkpoints are built, and a later deploy brings what it lacks.

    Args:
        bundle: as given to `check`.
    """
    if bundle.local is None or not host.get_fact(BundleFiles, directory=bundle.directory):
        host.noop("nothing was carried")
        return
    yield StringCommand("rm -rf", QuoteString(bundle.directory))

"""The offline bundle: the one source of a deploy where `qwen_offline` names one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyinfra.api.deploy import deploy

from qwenlab.bundle.manifest import BundleError, read
from qwenlab.bundle.source import KERNEL_STAMP, Bundle
from qwenlab.operations import bundle as operations
from qwenlab.operations.host import refuse
from tasks.engine import build_steps
from tasks.host import packages_by_hand, packages_of
from tasks.settings import Desired


def resolve(desired: Desired) -> Desired | None:
    """The same with its bundle read; None when that cannot be used, and then the host is refused at its first step."""
    settings = desired.settings
    if settings.offline is None:
        return desired
    try:
        place = settings.bundle_on_host
        bundle = operations.on_host(place) if place else _local(settings.offline, settings.release_directory)
    except BundleError as error:
        refuse(name="Refuse hosts without a usable bundle", reasons=(f"qwen_offline: {error}",))
        return None
    more: dict[str, object] = {"python": settings.python or bundle.manifest.python}
    if settings.model_source == "hub":
        more |= {"model_source": "path", "model_path": f"{bundle.directory}/models"}
    return replace(desired, settings=settings.model_copy(update=more), bundle=bundle)


def _local(place: str, release_directory: str) -> Bundle:
    root = Path(place).expanduser().absolute()
    stamp = root / KERNEL_STAMP
    kernels = operations.stamp_of(stamp.read_text(errors="replace")) if stamp.is_file() else {}
    return Bundle(read(root), f"{release_directory}/bundle", root, kernels)


@deploy("Check the bundle")
def check(desired: Desired) -> None:
    """Refuse a host that the bundle cannot serve, before anything is changed."""
    settings, bundle = desired.settings, desired.bundle
    if bundle is not None:
        steps, packages = build_steps(settings, bundle), packages_of(settings)
        operations.check(
            name="Can it serve this host?",
            settings=settings,
            bundle=bundle,
            steps=steps,
            packages=packages,
            by_hand=packages_by_hand(settings),
        )


@deploy("Bundle")
def carry(desired: Desired) -> None:
    """Bring what the host lacks."""
    settings, bundle = desired.settings, desired.bundle
    if bundle is not None:
        steps, packages = build_steps(settings, bundle), packages_of(settings)
        operations.carry(name="Carry it", settings=settings, bundle=bundle, steps=steps, packages=packages)


@deploy("Bundle")
def tidy(desired: Desired) -> None:
    """Remove what was carried."""
    if desired.bundle is not None:
        operations.tidy(name="Remove what was carried", bundle=desired.bundle)

"""A bundle as the one source of a deploy: what of it a host needs, and why it cannot serve a host. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from qwenlab.bundle.manifest import BundledFile, BundleError, LeftOut, Manifest
from qwenlab.engine.pins import EngineRelease
from qwenlab.planner.plan import Checkpoint

UV, WHEELS, PYTHON, DEBS, KERNELS, MODELS = (
    f"{name}/" for name in ("uv", "wheels", "python", "debs", "kernels", "models")
)
KERNEL_STAMP = "kernels/kernels.json"
ON_REQUEST = "left out on request"
_OLD_TAGS = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}


@dataclass(frozen=True)
class Bundle:
    """A bundle that a host is deployed from.

    Attributes:
        directory: where it lies on the host, or will lie once it was carried there.
        local: where it lies on the control machine; None for one that is on the host already.
        kernels: the stamp of its prebuilt kernels (`kernels.json`), where it has some.
    """

    manifest: Manifest
    directory: str
    local: Path | None = None
    kernels: Mapping[str, Any] = field(default_factory=dict)

    def below(self, prefix: str) -> tuple[BundledFile, ...]:
        """Its files below one directory."""
        return tuple(file for file in self.manifest.files if file.path.startswith(prefix))

    @property
    def borrowed(self) -> tuple[LeftOut, ...]:
        """Packages that a release takes from the host's own Python."""
        return tuple(one for one in self.manifest.left_out if one.why != ON_REQUEST)


@dataclass(frozen=True)
class Target:
    """What of a host decides whether a bundle fits.

    Attributes:
        pythons: minor versions of its interpreters.
        glibc: minor of its glibc 2.x; None when it could not tell.
        packages: distributions of the interpreter that a release will use, name to version.
    """

    architecture: str
    glibc: int | None
    pythons: Collection[str]
    packages: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lacking:
    """What a host does not have yet.

    Attributes:
        release: the engine's release is to be built.
        python: there is no interpreter for it.
        debs: Debian packages.
        checkpoints: those of its plan.
    """

    uv: bool = False
    release: bool = False
    python: bool = False
    debs: tuple[str, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()


def requirements(manifest: Manifest) -> str:
    """The hash-pinned requirements of a release, from the manifest's own digests.

    The lock's do not hold: wheels that were made to be cut into pieces were written anew.

    Raises:
        BundleError: a file among the wheels is none.
    """
    lines = []
    for file in manifest.wheels():
        try:
            name, version, _, _ = parse_wheel_filename(Path(file.path).name)
        except InvalidWheelFilename:
            raise BundleError(f"{file.path} is no wheel") from None
        lines.append(f"{canonicalize_name(name)}=={version} --hash=sha256:{file.sha256}\n")
    return "".join(sorted(lines))


def model_directory(manifest: Manifest, checkpoint: Checkpoint, layouts: Iterable[str]) -> str | None:
    """Where below the bundle a checkpoint lies, with a slash at the end; None when it does not."""
    paths = {file.path for file in manifest.files}
    places = [f"{MODELS}{layout}/" for layout in layouts if layout]
    return next((place for place in places if f"{place}config.json" in paths), None)


def needed(bundle: Bundle, lacking: Lacking, places: Iterable[str]) -> tuple[BundledFile, ...]:
    """The files of the bundle that a host lacks; `places` are the directories of the checkpoints."""
    prefixes = [
        *([UV] if lacking.uv else []),
        *([WHEELS, KERNELS] if lacking.release else []),
        *([PYTHON] if lacking.release and lacking.python else []),
        *([DEBS] if lacking.debs else []),
        *places,
    ]
    return tuple(file for file in bundle.manifest.files if file.path.startswith(tuple(prefixes))) if prefixes else ()


def deb_names(bundle: Bundle) -> dict[str, str]:
    """Debian package to its file below the bundle."""
    return {
        Path(file.path).name.split("_", 1)[0]: file.path for file in bundle.below(DEBS) if file.path.endswith(".deb")
    }


def debs_on_host(bundle: Bundle | None) -> dict[str, str] | None:
    """Debian package to its file on the host; None without a bundle: packages then come from the distribution."""
    return None if bundle is None else {name: f"{bundle.directory}/{path}" for name, path in deb_names(bundle).items()}


def unfit(bundle: Bundle, release: EngineRelease, python: str | None, target: Target) -> list[str]:
    """Why the bundle cannot serve a host whose settings ask for `release` (and `python`); empty when it can."""
    manifest = bundle.manifest
    again = f"make it again: python -m qwenlab bundle --engine {release.engine} --vllm {release.vllm}"
    if (manifest.engine, manifest.vllm) != (release.engine, release.vllm):
        return [
            f"the bundle holds vLLM {manifest.vllm} ({manifest.engine}), the settings ask for {release.vllm} "
            f"({release.engine}): {again}, or set qwen_engine and qwen_vllm"
        ]
    found = []
    if manifest.lock_sha256 != sha256(release.lock().encode()).hexdigest():
        found.append(
            f"the bundle was made from another lock of vLLM {release.vllm} (by qwenlab {manifest.qwenlab}): {again}"
        )
    machine = re.sub(r"^manylinux_\d+_\d+_", "", manifest.platform)
    if machine != target.architecture:
        found.append(f"the bundle is for {machine}, the host's processor is {target.architecture}: {again} there")
    found += [*_python(bundle, python, target, again), *_glibc(bundle, target, again)]
    found += [*_borrowed(bundle, target), *_kernels(bundle, release)]
    return found


def _python(bundle: Bundle, asked: str | None, target: Target, again: str) -> list[str]:
    made_for = bundle.manifest.python
    if asked is not None and asked != made_for:
        return [f"the bundle is for Python {made_for}, qwen_python asks for {asked}: {again} --python {asked}"]
    if made_for in target.pythons or bundle.below(PYTHON):
        return []
    there = ", ".join(target.pythons) or "none"
    return [
        f"the bundle is for Python {made_for} and carries none; the host has {there}: {again} "
        f"--python {next(iter(target.pythons), made_for)}, or --with-python"
    ]


def _glibc(bundle: Bundle, target: Target, again: str) -> list[str]:
    if target.glibc is None:
        return []
    too_new = [
        (minor, Path(file.path).name)
        for file in bundle.manifest.wheels()
        if (minor := oldest_glibc(file.path)) > target.glibc
    ]
    if not too_new:
        return []
    minor, name = max(too_new)
    return [f"the bundle's {name} needs glibc 2.{minor}, the host has 2.{target.glibc}: {again} --glibc {target.glibc}"]


def oldest_glibc(wheel: str) -> int:
    """Minor of the oldest glibc 2.x that a wheel runs on; 0 for one without compiled parts."""
    try:
        _, _, _, tags = parse_wheel_filename(Path(wheel).name)
    except InvalidWheelFilename:
        return 0
    return min(map(_minor, tags))


def _minor(tag: Tag) -> int:
    if found := re.match(r"manylinux_2_(\d+)_", tag.platform):
        return int(found[1])
    return _OLD_TAGS.get(tag.platform.split("_", 1)[0], 0)


def _borrowed(bundle: Bundle, target: Target) -> list[str]:
    wrong = [
        f"{one.name} {one.target_has} ({target.packages.get(one.name) or 'none'} there)"
        for one in bundle.borrowed
        if target.packages.get(one.name) != one.target_has
    ]
    if not wrong:
        return []
    shown = ", ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
    return [
        f"the bundle leaves to the host what its Python {bundle.manifest.python} does not have: {shown}. Make the "
        "bundle with this host's own `pip list --format=freeze` as --have, or without --have"
    ]


def _kernels(bundle: Bundle, release: EngineRelease) -> list[str]:
    if not bundle.below(KERNELS) or bundle.kernels.get("flashinfer") == release.flashinfer:
        return []
    return [
        f"the bundle's kernels were built for FlashInfer {bundle.kernels.get('flashinfer')}, vLLM {release.vllm} runs "
        f"with {release.flashinfer}: build them again (qwenlab/bundle/kernels.py), or leave them out"
    ]

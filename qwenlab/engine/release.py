"""What identifies a release, and the job that builds it: pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import Any

from qwenlab.bundle.source import KERNELS, PYTHON, WHEELS, Bundle, requirements
from qwenlab.engine.pins import pins
from qwenlab.settings import Settings

RECIPE = "1"  # raise it when the way of building changes what a release holds
UV = "/usr/local/bin/uv"
CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
BUNDLE_VARIABLE = "QWEN_BUNDLE"  # tells a build's steps where the bundle lies
PYTHON_FROM_UV = "3.12"  # when the host has no Python that the release supports


@dataclass(frozen=True)
class BuildStep:
    """One further step of a build: a program that the release's interpreter runs in a folder of its own.

    The folder holds `files` and nothing else; the release's site-packages are found through `sys.prefix`. Packages may
    share files with uv's cache by hard links, so a program writes a new file and renames it, and never writes in place.

    Attributes:
        name: folder name; purpose: one phrase for progress and errors ("apply the patch series").
        program: Python source, standard library only.
        files: name to text; part of the release's id, as the program and its arguments are.
    """

    name: str
    purpose: str
    program: str
    files: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class PythonChoice:
    """The interpreter of a release: its minor version, and what uv is told to use."""

    minor: str
    request: str


def pinned_steps(settings: Settings) -> tuple[BuildStep, ...]:
    """The steps that the table of pins names for the release."""
    folder = files("qwenlab.engine.steps")
    return tuple(
        BuildStep(name, purpose, folder.joinpath(f"{name}.py").read_text())
        for name, purpose in settings.release.steps.items()
    )


def choose_python(settings: Settings, found: Mapping[str, str]) -> PythonChoice:
    """The interpreter for the release that the settings name.

    Args:
        found: minor version to interpreter on the host, the distribution's own python3 first.
    """
    supported = settings.release.pythons
    if settings.python is not None:
        return PythonChoice(settings.python, found.get(settings.python, settings.python))
    usable = [minor for minor in found if minor in supported]
    if usable:
        own = usable[0] if next(iter(found)) == usable[0] else max(usable, key=supported.index)
        return PythonChoice(own, found[own])
    return PythonChoice(PYTHON_FROM_UV, PYTHON_FROM_UV)


def release_id(settings: Settings, python: PythonChoice, steps: tuple[BuildStep, ...]) -> str:
    """`<engine>-<vLLM>-<12 hex digits>` over everything that a release is made of."""
    parts = [RECIPE, settings.release.lock(), python.minor, settings.release.distribution_alias or ""]
    parts += [json.dumps(asdict(step), sort_keys=True) for step in steps]
    digest = sha256("\0".join(parts).encode()).hexdigest()[:12]
    return f"{settings.engine}-{settings.release.vllm}-{digest}"


def bundle_steps(bundle: Bundle) -> tuple[BuildStep, ...]:
    """What a bundle adds to a build: its prebuilt kernels, and a look at what it leaves to the host's own Python.

    Both are part of the release's id. Where the bundle lies is not: the program finds it in its environment.
    """
    folder = files("qwenlab.engine.steps")

    def step(name: str, purpose: str, content: Mapping[str, Any]) -> BuildStep:
        text = json.dumps(content, indent=1, sort_keys=True)
        return BuildStep(name, purpose, folder.joinpath(f"{name}.py").read_text(), {f"{name}.json": text})

    found = []
    if kernels := bundle.below(KERNELS):
        digests = {file.path: file.sha256 for file in kernels}
        found.append(step("prebuilt_kernels", "put the prebuilt kernels in place", digests))
    if bundle.borrowed or bundle.manifest.trimmed:
        left = {
            "borrowed": {one.name: one.target_has for one in bundle.borrowed},
            "trimmed": sorted(bundle.manifest.trimmed),
        }
        found.append(step("borrowed_packages", "look at what the bundle leaves to the host", left))
    return tuple(found)


def build_job(
    settings: Settings, python: PythonChoice, steps: tuple[BuildStep, ...], bundle: Bundle | None = None
) -> dict[str, Any]:
    """The job that build_release.py reads; JSON-able.

    Args:
        bundle: what a deploy without a network is made from.
    """
    release = settings.release
    name = release_id(settings, python, steps)
    alias = {"name": release.distribution_alias, "version": f"{release.vllm}+{release.engine}"}
    return {
        "id": name,
        "directory": f"{settings.release_directory}/releases",
        "version": release.vllm,
        "python": python.request,
        "lock": release.lock() if bundle is None else requirements(bundle.manifest),
        "alias": alias if release.distribution_alias else None,
        "find_links": list(settings.wheel_sources) if bundle is None else [f"{bundle.directory}/{WHEELS}"],
        "offline": bundle is not None,
        "system_packages": bundle is not None and bool(bundle.borrowed),
        "need_gib": release.release_gib if settings.min_release_gib is None else settings.min_release_gib,
        "environment": uv_environment(settings) | ({} if bundle is None else offline_environment(bundle)),
        "steps": [asdict(step) for step in steps],
        "record": {
            "id": name,
            "engine": release.engine,
            "vllm": release.vllm,
            "torch": release.torch,
            "flashinfer": release.flashinfer,
            "python": python.minor,
            "steps": [step.name for step in steps],
        },
    }


def proxies(settings: Settings) -> dict[str, str]:
    """Proxy variables in both spellings that programs read."""
    given = {
        "http_proxy": settings.http_proxy,
        "https_proxy": settings.https_proxy,
        "no_proxy": ",".join(settings.no_proxy) or None,
    }
    lower = {name: value for name, value in given.items() if value}
    return {**lower, **{name.upper(): value for name, value in lower.items()}}


def uv_environment(settings: Settings) -> dict[str, str]:
    """What uv is told by its environment (docs.astral.sh/uv/reference/environment)."""
    indexes = settings.index_urls
    chosen = {
        "UV_NO_CONFIG": "1",
        "UV_CACHE_DIR": settings.uv_cache_directory,
        "UV_PYTHON_INSTALL_DIR": f"{settings.release_directory}/python",
        "UV_PYTHON_INSTALL_MIRROR": settings.python_mirror or "",
        "UV_DEFAULT_INDEX": indexes[-1] if indexes else "",
        "UV_INDEX": " ".join(indexes[:-1]),
        # every file is pinned by its sha256, so it does not matter which index serves it
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_HTTP_TIMEOUT": "120",
        "SSL_CERT_FILE": CA_BUNDLE,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return {**proxies(settings), **{name: value for name, value in chosen.items() if value}}


def offline_environment(bundle: Bundle) -> dict[str, str]:
    """What uv and the build's steps are told beside it where a bundle is the one source."""
    if bundle.below(PYTHON):
        return {BUNDLE_VARIABLE: bundle.directory, "UV_PYTHON_INSTALL_MIRROR": f"file://{bundle.directory}/python"}
    return {BUNDLE_VARIABLE: bundle.directory, "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}


def uv_job(settings: Settings, architecture: str, bundle: Bundle | None = None) -> dict[str, Any]:
    """The job that fetch_uv.py reads.

    Args:
        architecture: as `uname -m` says it.
        bundle: what a deploy without a network is made from.

    Raises:
        KeyError: no uv is pinned for this architecture.
    """
    pin = pins().uv
    wheel = pin.wheels[architecture]
    return {
        "version": pin.version,
        "file": wheel.file,
        "sha256": wheel.sha256,
        "index": settings.index_url if bundle is None else None,
        "folder": settings.wheel_directory if bundle is None else f"{bundle.directory}/uv",
        "target": UV,
    }

"""The programs that run on a host, shipped as text: the standard library and the packages beside them are enough."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

from qwenlab.remote import LIBRARY
from qwenlab.render import RemoteFile
from qwenlab.settings import Settings

PROGRAMS = {
    # file below /usr/local/lib/qwen -> what it is for
    "fetch_uv.py": "puts the pinned uv in place",
    "build_release.py": "builds an engine release",
    "fetch_checkpoint.py": "fetches a checkpoint from the hub",
    "engine.py": "runs one engine and tells systemd when it answers",
    "fingerprint": "says whether an engine runs with the files that lie there now",
    "engines-up": "lets qwen.service succeed only when every engine answers",
    "gate.py": "says before a start whether the engine may start, and why not",
    "liveness.py": "tells systemd whether a serving engine still generates",
    "generation.py": "keeps what served well, and brings it back",
    "status.py": "says how the host serves, as JSON",
    "verify.py": "asks every engine a small fixed battery of questions",
    "cards.py": "names the cards' device nodes by UUID",
    "card_metrics.py": "hands the cards' figures to the node exporter",
    "rehearse.py": "tries a plan with weights made up by vLLM",
    "calibrate.py": "measures what engines take beside their KV pools",
}

# What they import lies beside them, and Python looks there first. Parents need no more than to be packages.
PARENTS = ("qwenlab", "qwenlab.remote")
PACKAGES = (
    "qwenlab.remote.battery",
    "qwenlab.remote.common",
    "qwenlab.remote.gating",
    "qwenlab.preparation",
    "qwenlab.rehearsal",
)
FETCHING = ("qwenlab.remote.checkpoint", "qwenlab.preparation")  # come with the checkpoints


def programs(settings: Settings) -> dict[str, RemoteFile]:
    """The programs and what they import, by path on the host; `fetch_checkpoint.py` still lacks `FETCHING`."""
    folder = files("qwenlab.remote")
    texts = {name: folder.joinpath(name).read_text() for name in PROGRAMS}
    own = {
        f"{LIBRARY}/{name}": RemoteFile(text.replace("@RELEASES@", settings.release_directory), "755")
        for name, text in texts.items()
    }
    return own | modules(PACKAGES)


def modules(packages: Iterable[str]) -> dict[str, RemoteFile]:
    """The modules of packages and what makes their parents packages, by path on the host."""
    found = {f"{directory(parent)}/__init__.py": files(parent).joinpath("__init__.py") for parent in PARENTS}
    for package in packages:
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                found[f"{directory(package)}/{file.name}"] = file
    return {path: RemoteFile(file.read_text()) for path, file in found.items()}


def directories(packages: Iterable[str]) -> list[str]:
    """Where packages and their parents lie on the host, parents first."""
    return [directory(package) for package in (*PARENTS, *packages)]


def directory(package: str) -> str:
    """Where a package lies on the host."""
    return f"{LIBRARY}/{package.replace('.', '/')}"

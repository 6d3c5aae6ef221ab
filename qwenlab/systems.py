"""The distributions and processors that qwenlab deploys to."""

from __future__ import annotations

from qwenlab.settings import Settings

SUPPORTED = {
    # os-release ID -> releases
    "debian": ("12", "13"),
    "ubuntu": ("24.04", "25.10", "26.04"),
}


def system_problem(system: str | None, release: str | None, shown: str | None = None) -> str | None:
    """Why a system is none that qwenlab deploys to, in words; None when it is one.

    Args:
        system: ID of os-release.
        release: VERSION_ID of os-release.
        shown: how the system calls itself.
    """
    if release is not None and release in SUPPORTED.get(system or "", ()):
        return None
    known = "; ".join(f"{name} {', '.join(versions)}" for name, versions in SUPPORTED.items())
    return f"{shown or system or 'an unknown system'} is not supported: use {known}"


def processor_problem(architecture: str | None, settings: Settings) -> str | None:
    """Why the engine does not exist for a processor (`uname -m`), in words; None when it does."""
    release = settings.release
    if architecture in release.architectures:
        return None
    return (
        f"the processor is {architecture or 'unknown'}; vLLM {release.vllm} ({settings.engine}) exists for "
        f"{', '.join(release.architectures)}"
    )

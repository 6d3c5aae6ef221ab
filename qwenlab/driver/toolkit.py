"""The CUDA compiler for kernels that are compiled at run time: which, where from, and whether it fits.

It must be of the same minor version as the CUDA headers that torch was built with: an older one fails as a newer one
does (vllm-project/vllm 44305, syv-ai/HyperQwen docs/install.md). /usr/local/cuda is of no use: a second minor moves it.
"""

from __future__ import annotations

from dataclasses import dataclass

from qwenlab.settings import Settings

NVCC = "nvidia-cuda-nvcc"  # the wheel whose pin names the version
DROP_IN = "/etc/systemd/system/qwen-engine@.service.d/cuda.conf"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Toolkit:
    """What lies at a toolkit's place: releases as `13.0`, None where the file is missing."""

    nvcc: str | None = None
    headers: str | None = None
    curand: bool = False


def minor(settings: Settings) -> str:
    """The toolkit minor of the pinned release, e.g. `13.0`. Raises LookupError for a release without CUDA."""
    pinned = settings.release.constraints.get(NVCC)
    if pinned is None:
        raise LookupError(f"vLLM {settings.release.vllm} ({settings.engine}) pins no {NVCC}")
    return ".".join(pinned.split(".")[:2])


def package(minor: str) -> str:
    """The metapackage of exactly this minor; `cuda` and `cuda-toolkit` follow the newest and may bring a driver."""
    return f"cuda-toolkit-{minor.replace('.', '-')}"


def home(settings: Settings, python: str) -> str | None:
    """CUDA_HOME of the engines; None when the host is left to itself.

    Args:
        python: minor version of the release's Python, which is part of the wheels' path.
    """
    version = minor(settings)
    if settings.cuda_from == "apt":
        return f"/usr/local/cuda-{version}"
    if settings.cuda_from == "pip":
        packages = f"{settings.release_directory}/current/venv/lib/python{python}/site-packages"
        return f"{packages}/nvidia/cu{version.split('.')[0]}"
    return None


def drop_in(home: str, settings: Settings) -> str:
    """The units' environment: this compiler first, the host's PATH without any other toolkit after it."""
    return (
        "[Service]\n"
        f"Environment=CUDA_HOME={home} CUDA_PATH={home}\n"
        f"Environment=PATH={home}/bin:{settings.release_directory}/current/venv/bin:{SYSTEM_PATH}\n"
    )


def problems(found: Toolkit, wanted: str, home: str) -> list[str]:
    """Why this toolkit would not do; empty when it does."""
    if found.nvcc is None:
        return [f"there is no nvcc in {home}/bin: apt-get install --reinstall {package(wanted)}"]
    reasons = []
    if found.nvcc != wanted:
        reasons.append(f"{home}/bin/nvcc is release {found.nvcc}, the engine's CUDA headers are {wanted}")
    if found.headers != wanted:
        reasons.append(f"the headers in {home}/include are {found.headers or 'missing'}, the engine's are {wanted}")
    if not found.curand:
        reasons.append(
            f"perf_degraded:curand: {home}/include/curand_kernel.h is missing, and a kernel falls back to a slower one "
            f"without a word: apt-get install libcurand-dev-{wanted.replace('.', '-')}"
        )
    return reasons

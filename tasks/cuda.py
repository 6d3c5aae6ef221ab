"""The CUDA compiler for kernels that are made at run time."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import cuda
from qwenlab.settings import Settings


@deploy("CUDA toolkit")
def install(settings: Settings) -> None:
    """The toolkit packages, where they are asked for."""
    if settings.engine == "cuda":
        cuda.packages(name="Toolkit of the engine's CUDA", settings=settings)

"""What a CUDA toolkit's directory holds: compiler, headers, curand."""

from __future__ import annotations

import re
import shlex

from pyinfra.api.facts import FactBase

from qwenlab.driver.toolkit import Toolkit


class CudaToolkit(FactBase[Toolkit]):
    """`Toolkit` of one directory."""

    def command(self, home: str) -> str:
        """`home`: CUDA_HOME."""
        place = shlex.quote(home)
        return (
            f"{place}/bin/nvcc --version 2>/dev/null; "
            f"grep -h 'define CUDART_VERSION' {place}/include/cuda_runtime_api.h 2>/dev/null; "
            f"[ ! -e {place}/include/curand_kernel.h ] || echo curand; true"
        )

    def process(self, output: list[str]) -> Toolkit:
        """Parse."""
        text = "\n".join(output)
        release = re.search(r"release (\d+\.\d+)", text)
        number = re.search(r"CUDART_VERSION\s+(\d+)", text)
        return Toolkit(
            nvcc=release[1] if release else None,
            headers=f"{int(number[1]) // 1000}.{int(number[1]) % 1000 // 10}" if number else None,
            curand="curand" in output,
        )

    @staticmethod
    def default() -> Toolkit:
        """Nothing there."""
        return Toolkit()

"""Prebuild FlashInfer kernels for cards that are elsewhere. Runs with the engine's own Python, no card needed.

usage: PYTHON kernels.py --arch 9.0a --out DIR [--modules topk,sampling]

A first start with a DFlash2 drafter otherwise compiles FlashInfer's top-k inside the server for minutes (367 s on two
cores for sm_90a, vLLM 0.30.0). The result lies as DIR/<module>/<module>.so, the layout of FlashInfer's own folder for
prebuilt kernels (`flashinfer/data/aot`); it holds for exactly the FlashInfer version that built it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

GENERATORS = {
    "topk": ("flashinfer.jit.topk", "gen_topk_module"),
    "sampling": ("flashinfer.jit.sampling", "gen_sampling_module"),
}


def build(arch: str, out: Path, modules: list[str]) -> None:
    """Compile each module for `arch` ("9.0a", "12.0a", several with spaces) below `out`, with a stamp of the version.

    Raises:
        SystemExit: FlashInfer or nvcc is missing, or the compiler failed.
    """
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(FLASHINFER_CUDA_ARCH_LIST=arch, FLASHINFER_WORKSPACE_BASE=scratch)
        _stand_in_for_libcuda(Path(scratch))
        _add_flag("FLASHINFER_EXTRA_LDFLAGS", f"-L{scratch}")
        for folder in _curand_headers():
            _add_flag("FLASHINFER_EXTRA_CUDAFLAGS", f"-I{folder}")
        try:
            version = import_module("flashinfer.version").__version__
        except ImportError as error:
            raise SystemExit(f"run this with the engine's Python: {error}") from None
        for name in modules:
            module, function = GENERATORS[name]
            print(f"building {name} for {arch} (minutes)", flush=True)
            spec = getattr(import_module(module), function)()
            spec.build(verbose=False)
            built = Path(spec.jit_library_path)
            (out / spec.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(built, out / spec.name / f"{spec.name}.so")
        (out / "kernels.json").write_text(json.dumps({"flashinfer": version, "arch": arch, "modules": modules}) + "\n")


def _stand_in_for_libcuda(folder: Path) -> None:
    """An empty libcuda to link against where no driver is; the real one is found when the kernel is loaded."""
    subprocess.run(
        ["cc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so")],
        check=True,
    )


def _curand_headers() -> list[Path]:
    """Where the toolkit came without cuRAND's headers: those of torch's own CUDA wheels."""
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include" / "curand.h"
    if toolkit.is_file():
        return []
    roots = [Path(entry) for entry in sys.path if entry.endswith("site-packages")]
    return [header.parent for root in roots for header in root.glob("nvidia/*/include/curand.h")][:1]


def _add_flag(variable: str, flag: str) -> None:
    os.environ[variable] = f"{flag} {os.environ.get(variable, '')}".strip()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--arch", required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--modules", default=",".join(GENERATORS))
    given = options.parse_args()
    names = given.modules.split(",")
    if unknown := set(names) - GENERATORS.keys():
        sys.exit(f"no such module: {', '.join(sorted(unknown))}; known: {', '.join(GENERATORS)}")
    build(given.arch, given.out, names)

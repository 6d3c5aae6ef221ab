"""The CUDA toolkit's packages: one directory, one alternative and one set of package names for each minor version."""

from __future__ import annotations

from tests.lab.apt_repository.debs import Deb, link, program, text

MINORS = {"13-0": "13.0.2", "13-1": "13.1.1"}  # package suffix -> release; the last is what `cuda-toolkit` means
NVCC = """\
#!/bin/sh
echo "nvcc: NVIDIA (R) Cuda compiler driver"
echo "Copyright (c) 2005-2025 NVIDIA Corporation"
echo "Built on Wed_Aug_20_01:58:59_PM_PDT_2025"
echo "Cuda compilation tools, release {short}, V{release}"
echo "Build cuda_{short}.r{short}/compiler.36424714_0"
"""
ALTERNATIVE = """\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    update-alternatives --quiet --install /usr/local/cuda cuda /usr/local/cuda-{short} {priority}
    update-alternatives --quiet --install /usr/local/cuda-13 cuda-13 /usr/local/cuda-{short} {priority}
fi
"""
NO_ALTERNATIVE = """\
#!/bin/sh
set -e
update-alternatives --quiet --remove cuda /usr/local/cuda-{short}
update-alternatives --quiet --remove cuda-13 /usr/local/cuda-{short}
"""
INCLUDE = "usr/local/cuda-{short}/targets/x86_64-linux/include"


def packages() -> list[Deb]:
    """cuda-toolkit-13-0, cuda-toolkit-13-1, what they consist of, and the names that follow the newest."""
    result = [package for suffix, release in MINORS.items() for package in _minor(suffix, release)]
    newest, release = list(MINORS.items())[-1]
    version = f"{release}-1"
    result.append(_meta("cuda-toolkit", version, f"cuda-toolkit-{newest} (>= {version})"))
    result.append(_meta("cuda", version, f"cuda-toolkit-{newest} (>= {version}), cuda-drivers"))  # drags a driver in
    return result


def _minor(suffix: str, release: str) -> list[Deb]:
    short = release.rsplit(".", 1)[0]
    version = f"{release}-1"
    root, include = f"usr/local/cuda-{short}", INCLUDE.format(short=short)
    major, minor = short.split(".")
    number = int(major) * 1000 + int(minor) * 10
    config = Deb(
        name=f"cuda-toolkit-{suffix}-config-common",
        version=version,
        architecture="all",
        summary="Common config package for CUDA Toolkit",
        files={f"{root}/version.json": text(f'{{"cuda": {{"name": "CUDA SDK", "version": "{release}"}}}}\n')},
        scripts={
            "postinst": ALTERNATIVE.format(short=short, priority=int(major) * 10 + int(minor)),
            "prerm": NO_ALTERNATIVE.format(short=short),
        },
    )
    parts = {
        f"cuda-nvcc-{suffix}": {f"{root}/bin/nvcc": program(NVCC.format(short=short, release=release))},
        f"cuda-cudart-dev-{suffix}": {
            f"{root}/include": link("targets/x86_64-linux/include"),
            f"{root}/lib64": link("targets/x86_64-linux/lib"),
            f"{include}/cuda_runtime_api.h": text(f"#define CUDART_VERSION {number}\n"),
            f"{include}/cuda.h": text(f"#define CUDA_VERSION {number}\n"),
        },
        f"libcurand-dev-{suffix}": {
            f"{include}/curand.h": text("#define CURAND_VERSION 10400\n"),
            f"{include}/curand_kernel.h": text('#include "curand.h"\n'),
        },
        f"libcublas-dev-{suffix}": {f"{include}/cublas_v2.h": text("#define CUBLAS_VER_MAJOR 13\n")},
    }
    depends = {"Depends": f"{config.name} (>= {version})"}
    built = [
        Deb(name=name, version=version, summary="CUDA toolkit component", relations=depends, files=files)
        for name, files in parts.items()
    ]
    everything = ", ".join(f"{name} (>= {version})" for name in parts)
    return [config, *built, _meta(f"cuda-toolkit-{suffix}", version, everything)]


def _meta(name: str, version: str, depends: str) -> Deb:
    return Deb(name=name, version=version, summary="CUDA metapackage", relations={"Depends": depends})

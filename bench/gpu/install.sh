#!/bin/sh
# Install a joined bundle beside a machine's own Python packages, without a network and without touching them.
# usage: bench/gpu/install.sh BUNDLE PREFIX      (python3 on the PATH is the machine's Python with torch)
set -eu
bundle=$1 prefix=$2
machine=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
python3 -m venv --without-pip "$prefix"
site=$("$prefix/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
printf '%s\n' "$machine" >"$site/machine.pth" # after the prefix's own packages: the bundle wins
python3 -m pip --python "$prefix/bin/python" install --quiet --no-index --no-deps --no-compile --no-cache-dir \
    --ignore-installed "$bundle"/wheels/*.whl
if [ -d "$bundle/kernels" ]; then
    mkdir -p "$site/flashinfer/data/aot"
    cp -r "$bundle"/kernels/*/ "$site/flashinfer/data/aot/"
fi
"$prefix/bin/python" -c 'import torch, vllm; print("torch", torch.__version__, "vllm", vllm.__version__)'

#!/bin/sh
# Records what this GPU machine says of itself, with UUIDs, serials and addresses replaced, and prints whether NVML,
# nvidia-smi and sysfs agree. Needs Python 3.11 and nothing else; with pynvml.py on PYTHONPATH (the one file of
# nvidia-ml-py) NVML is read too.
#
# usage: bench/gpu/record_inventory.sh DIRECTORY        from the repository's root
set -eu
into=${1:?usage: record_inventory.sh DIRECTORY}
here=$(cd "$(dirname "$0")/../.." && pwd)
PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH
python3 -m qwenlab probe --record "$into" --scrub ||
    echo "the sources differ, see above"
python3 -m qwenlab probe --from "$into" --json >"$into/probe.json" 2>"$into/probe.err" ||
    echo "probe --json: exit $?, see probe.err (it needs pydantic, yaml and rich)"

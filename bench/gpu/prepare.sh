#!/bin/sh
# Make a GPU machine ready for bench/gpu/run.py: stock and patched release beside each other, and its inventory.
# usage: bench/gpu/prepare.sh BUNDLE FOLDER      (in the repository's root; python3 is the machine's Python with torch)
set -eu
bundle=$1 folder=$2
mkdir -p "$folder"
for release in stock patched; do
    (
        sh bench/gpu/install.sh "$bundle" "$folder/$release" >"$folder/$release.log" 2>&1
        if [ "$release" = patched ]; then
            python="$folder/patched/bin/python"
            PYTHONPATH=$PWD "$python" -m bench.gpu.patch_job >"$folder/job.json"
            "$python" qwenlab/patches/applier.py apply "$folder/job.json" >>"$folder/patched.log"
        fi
        # Several engines start at once later: none of them should find uncompiled modules.
        python3 -m compileall -q -j 8 "$folder/$release/lib" >/dev/null || true
    ) &
    started="${started-} $!"
done
for process in $started; do
    wait "$process" || { tail -n 5 "$folder"/*.log >&2; exit 1; }
done
tail -n 1 "$folder/stock.log" "$folder/patched.log"
PYTHONPATH=$PWD "$folder/patched/bin/python" -m qwenlab probe --json >"$folder/inventory.json"
PYTHONPATH=$PWD "$folder/patched/bin/python" -m bench.gpu.small "$folder/models/small"

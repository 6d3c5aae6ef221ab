#!/bin/sh
# From a bundle to one report: install stock and patched release, probe, plan, start what is planned, measure.
# usage: bench/gpu/bench.sh BUNDLE FOLDER CAMPAIGN [CARDS [DEADLINE_S]]      (in the repository's root)
# Campaigns: bench/gpu/campaigns.py. Leaves FOLDER/report/report.json and each engine's log beside it.
set -eu
bundle=$1 folder=$2 campaign=$3 cards=${4:-1} deadline=${5:-1500}
sh bench/gpu/prepare.sh "$bundle" "$folder"
export PYTHONPATH="$PWD"
python=$folder/patched/bin/python
"$python" -m bench.gpu.campaigns "$campaign" \
    --inventory "$folder/inventory.json" --models "$folder/models" --out "$folder/$campaign.json"
exec "$python" -m bench.gpu.run --arms "$folder/$campaign.json" --out "$folder/report" \
    --cards "$cards" --card-gib 137 --deadline-s "$deadline" \
    --release stock="$folder/stock/bin/python" --release patched="$python"

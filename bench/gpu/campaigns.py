"""Arms of whole measuring campaigns, in waves: which engines share the cards, and in which order they are measured.

usage: PYTHON -m bench.gpu.campaigns NAME --inventory FILE --models DIR --out FILE [--done A,B]

NAME is one of one-card, batch-drafts, full-tiles, prompts, two-cards and pools.

Plans are made here, from the machine's own inventory, each for as much memory as the wave leaves it; predictions are
printed before anything is measured. A start takes three to five minutes, so what shares a wave saves one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.gpu.arms import BURSTS, GROUPS, Share, memory, planned, stock, write_models
from bench.gpu.wave import waves
from qwenlab.host_inventory import HostInventory
from qwenlab.planner.memory import GIB

Arms = list[dict[str, Any]]
START_S = 480  # several engines at once
PROFILE = next(burst for burst in BURSTS if burst["label"] == "c64") | {"label": "profile", "output_tokens": 320}
PROMPT = next(burst for burst in BURSTS if burst["label"] == "prefill-16k") | {"label": "profile", "seed": 7}
PROMPTS = [burst for burst in BURSTS if burst["label"] in ("first", "prefill-16k")]
SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 16, 2], [17, 32, 1]]}
STOCK_POOL_GIB = 55  # stock asks for 1,024 seats, each with a recurrent state
STOCK_GIB = 115
ROOM_GIB = 136  # of an H200's 139.8, contexts left out


def _wave(number: int, arms: Arms, **more: Any) -> Arms:
    return [arm | {"wave": number, "limit_s": START_S, **more} for arm in arms]


def one_card(inventory: HostInventory, models: Path) -> Arms:
    """Stock, and what is planned for every workload, on the first card."""
    plain = stock(models)[0]
    args = plain["args"] | {"kv-cache-memory-bytes": STOCK_POOL_GIB * GIB, "gpu-memory-utilization": 0.8}
    batch = planned(inventory, ["batch"], Share(gib=45))
    return [
        *_wave(1, [plain | {"args": args, "need_gib": STOCK_GIB}]),
        *_wave(2, batch, profile=PROFILE),
        *_wave(2, planned(inventory, ["chat"], Share(gib=46))),
        *_wave(2, planned(inventory, ["long"], Share(gib=44))),
    ]


def batch_drafts(inventory: HostInventory, models: Path) -> Arms:
    """What is planned for batches, and the same with fewer drafts, then stock, then the memory arms."""
    weights = {"qwen_checkpoint": "fp8-channel"}
    two, one = ({"qwen_speculation": "mtp", "qwen_draft_tokens": drafts} for drafts in (2, 1))
    return [
        *_wave(1, planned(inventory, ["batch"], Share(gib=65), weights | two), profile=PROFILE),
        *_wave(1, planned(inventory, ["batch"], Share(gib=60), weights | one)),
        *_wave(2, stock(models), need_gib=ROOM_GIB),
        *(arm | {"wave": 3} for arm in pools(inventory, models)),
    ]


def full_tiles(inventory: HostInventory, models: Path) -> Arms:
    """Chat with graphs of full tiles and with vLLM's own sizes; then batches on 16-bit weights, then stock."""
    chat = planned(inventory, ["chat"], Share(gib=46))
    own_sizes = [arm | {"name": f"{arm['name']}-own-sizes", "args": _with_own_sizes(arm["args"])} for arm in chat]
    return [
        *_wave(1, [*chat, *own_sizes]),
        *_wave(2, planned(inventory, ["batch"], Share(gib=110), {"qwen_checkpoint": "bf16"})),
        *_wave(3, stock(models), need_gib=ROOM_GIB),
    ]


def prompts(inventory: HostInventory, models: Path) -> Arms:
    """16-bit weights reading prompts, planned for batches and stock, kernel by kernel; then batches with two drafts.

    Stock has few seats and a small pool, to share the card: neither is felt by one prompt. Two drafts have graphs of
    full tiles, of vLLM's own sizes, and one draft fewer above 16 requests.
    """
    two_drafts = {"qwen_speculation": "mtp", "qwen_draft_tokens": 2, "qwen_concurrency": 32}
    tiles = planned(inventory, ["batch"], Share(gib=46), two_drafts)[0]
    tiles |= {"name": "batch-two-drafts", "bursts": [*PROMPTS[:1], *map(_decoding, (1, 4, 8, 24))]}
    own = _with_own_sizes(tiles["args"])
    scheduled = own | {"speculative-config": own["speculative-config"] | SCHEDULE}
    sixteen = planned(inventory, ["batch"], Share(gib=76), {"qwen_checkpoint": "bf16", "qwen_concurrency": 32})
    plain = stock(models)[0]
    small = plain["args"] | {"max-model-len": 32_768, "max-num-seqs": 8, "gpu-memory-utilization": 0.45}
    small |= {"kv-cache-memory-bytes": 4 * GIB}
    return [
        *_wave(1, [arm | {"bursts": PROMPTS} for arm in sixteen], profile=PROMPT),
        *_wave(1, [plain | {"args": small, "need_gib": 60, "bursts": PROMPTS}], profile=PROMPT),
        *_wave(2, [tiles]),
        *_wave(2, [tiles | {"name": "batch-two-drafts-own-sizes", "args": own}]),
        *_wave(2, [tiles | {"name": "batch-two-drafts-scheduled", "args": scheduled}]),
    ]


def _decoding(streams: int) -> dict[str, Any]:
    like = next(burst for burst in BURSTS if burst["label"] == "c4")
    return like | {"label": f"c{streams}", "concurrency": streams, "seed": 10 + streams}


def _with_own_sizes(args: dict[str, Any]) -> dict[str, Any]:
    """A plan's arguments with graphs of the sizes that vLLM chooses, up to the largest planned one."""
    config = dict(args["compilation-config"])
    largest = max(config.pop("cudagraph_capture_sizes"))
    return args | {"compilation-config": config | {"max_cudagraph_capture_size": largest}}


def two_cards(inventory: HostInventory, models: Path) -> Arms:
    """Two shards for every workload, greedy equality beside them; then both forms of batch without peer access."""
    both = (0, 1)
    shards = [arm for work in ("batch", "chat", "long") for arm in planned(inventory, [work], Share(both, gib=36))]
    without = [
        *planned(inventory, ["batch"], Share(both, gib=46, peers=False)),
        *planned(inventory, ["batch"], Share(both, gib=36, peers=False), {"qwen_tensor_parallel": 2}),
    ]
    beside = [arm | {"passing": True, "limit_s": 300} for arm in GROUPS["equality"](models)]
    sizes = [*GROUPS["tensor"](models), *(arm for arm in GROUPS["pipeline"](models) if arm["name"].endswith("20-44"))]
    return [
        *_wave(1, shards),
        *(arm | {"wave": 1} for arm in beside),
        *_wave(2, without),
        *(arm | {"wave": 2} for arm in sizes),
    ]


def pools(_inventory: HostInventory, models: Path) -> Arms:
    """The memory arms, large ones first, each followed by the largest that fits beside it."""
    left = sorted(memory(models), key=lambda arm: arm["need_gib"])
    found = []
    while left:
        found.append(left.pop())
        beside = [arm for arm in left if arm["need_gib"] + found[-1]["need_gib"] <= ROOM_GIB]
        if beside:
            left.remove(beside[-1])
            found.append(beside[-1])
    return [arm | {"wave": 1, "least_s": 100} for arm in found]


CAMPAIGNS: dict[str, Callable[[HostInventory, Path], Arms]] = {
    "one-card": one_card,
    "batch-drafts": batch_drafts,
    "full-tiles": full_tiles,
    "prompts": prompts,
    "two-cards": two_cards,
    "pools": pools,
}


def main() -> None:
    """Write the models and the arms file, and print what is predicted."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("campaign", choices=CAMPAIGNS)
    options.add_argument("--inventory", type=Path, required=True, help="`probe --json` of the machine")
    options.add_argument("--models", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--done", default="", help="arms to leave out, with commas")
    given = options.parse_args()
    inventory = HostInventory.model_validate(json.loads(given.inventory.read_text())["inventory"])
    write_models(given.models)
    left_out = set(given.done.split(","))
    arms = [arm for arm in CAMPAIGNS[given.campaign](inventory, given.models) if arm["name"] not in left_out]
    waves(arms, ROOM_GIB)
    given.out.write_text(json.dumps(arms, indent=1) + "\n")
    for arm in arms:
        print(arm["wave"], arm["name"], json.dumps(arm.get("predicted")))


if __name__ == "__main__":
    main()

"""Make the arms of a GPU bench: configurations with qwenlab's predictions beside them.

usage: python -m bench.gpu.arms --group smoke,memory,... --models DIR --out FILE

Predictions are computed here, before anything is measured. Models are dummy checkpoints written below --models.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from bench.gpu import layouts
from bench.gpu.engine_args import base_args, pinned_args
from qwenlab.host_inventory import HostInventory
from qwenlab.planner import plan
from qwenlab.planner.catalogue import checkpoints
from qwenlab.planner.geometry import drafters, models
from qwenlab.planner.memory import GIB, pool
from qwenlab.planner.plan import Speculation
from qwenlab.planner.shape import Card, EngineShape
from qwenlab.planner.throughput import tokens_per_step
from qwenlab.rehearsal.dummy_model import drafter_config, target_config, write
from qwenlab.settings import load

MODEL = "qwen3.8-27b"
# Data-sheet figures of the card under test (NVIDIA H200 SXM: 4.8 TB/s, 989 TFLOP/s dense bf16, 1979 dense FP8).
H200 = Card("GPU-0", 0, "NVIDIA H200", (9, 0), 139.8, 0.0, 4800, 989, 1979, 1979, 64)
# Of a memory arm, as vLLM logs them: weights, drafter, and what an engine without graphs takes beside its pool.
LOADED_GIB = {"fp8": 28, "bf16": 51}
DRAFTER_GIB = {"off": 0, "mtp": 1, "dflash": 4}
BESIDE_GIB = 4
BURSTS: list[dict[str, Any]] = [
    {"label": "first", "concurrency": 1, "prompt_tokens": 128, "output_tokens": 16},
    {"label": "prefill-16k", "concurrency": 1, "prompt_tokens": 16_384, "output_tokens": 1, "seed": 1},
    {"label": "prefill-16k", "concurrency": 1, "prompt_tokens": 16_384, "output_tokens": 1, "seed": 2},
    {"label": "warm", "concurrency": 64, "prompt_tokens": 128, "output_tokens": 16, "seed": 3},
    {"label": "c1", "concurrency": 1, "prompt_tokens": 128, "output_tokens": 256, "seed": 4},
    {"label": "c4", "concurrency": 4, "prompt_tokens": 128, "output_tokens": 256, "seed": 6},
    {"label": "c64", "concurrency": 64, "prompt_tokens": 128, "output_tokens": 512, "seed": 5},
]
SYNTHETIC = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4.0}


def synthetic(speculation: Speculation) -> dict[str, Any]:
    """A fixed acceptance length in place of the dummy weights' own: 4.0, or for MTP what batches are planned by."""
    if speculation.method == "dflash":
        return SYNTHETIC
    return SYNTHETIC | {"synthetic_acceptance_length": round(tokens_per_step("batch", "mtp", speculation.tokens), 2)}


def speculative(method: str, models_dir: Path, tokens: int = 7) -> dict[str, Any]:
    """vLLM's speculative config for a method, with a fixed acceptance where weights mean nothing."""
    if method == "mtp":
        return {"method": "mtp", "num_speculative_tokens": 3}
    drafter = {"method": "dflash", "model": str(models_dir / "drafter-bf16"), "num_speculative_tokens": tokens}
    return {**drafter, "draft_sample_method": "probabilistic"}


def smoke(models_dir: Path) -> list[dict[str, Any]]:
    """Does the stack start at all: stock bf16, block FP8, DFlash2 in both drafter formats."""
    bursts = [burst for burst in BURSTS if burst["label"] in ("first", "c1")]
    arms: dict[str, tuple[str, dict[str, Any]]] = {
        "smoke-stock": ("bf16", {}),
        "smoke-fp8": ("fp8", {"kv-cache-dtype": "fp8", "max-num-seqs": 64}),
        "smoke-dflash": (
            "fp8",
            {"max-num-seqs": 16, "speculative-config": speculative("dflash", models_dir) | SYNTHETIC},
        ),
        "smoke-int4": ("int4-autoround", {"max-num-seqs": 16}),
    }
    return [
        {
            "name": name,
            "group": "smoke",
            "what": "serve",
            "cards": 1,
            "model": str(models_dir / format_),
            "args": base_args(65_536) | args,
            "env": {},
            "bursts": bursts,
        }
        for name, (format_, args) in arms.items()
    ]


def memory(models_dir: Path) -> list[dict[str, Any]]:
    """KV pools at a pinned size: weights x KV dtype x speculation x length, predicted before they are read."""
    arms = []
    for format_, kv, method, length in product(
        ("fp8", "bf16"), ("fp8", "bfloat16"), ("off", "mtp", "dflash"), (65_536, 262_144)
    ):
        pin = int((24 if length > 100_000 else 10) * GIB)
        tokens = {"off": 0, "mtp": 3, "dflash": 7}[method]
        shape = EngineShape(
            checkpoint=next(key for key, spec in checkpoints().items() if spec.format == format_),
            cards=(H200,),
            vllm="0.33.0",
            drafter="dflash2-bf16" if method == "dflash" else None,
            speculation=Speculation(method=method, tokens=tokens) if tokens else None,  # type: ignore[arg-type]
            kv_dtype=kv,
            ssm_dtype="bfloat16",
            attention_backend="FLASH_ATTN",
            max_model_len=length,
            max_num_seqs=4,
            max_num_batched_tokens=4096,
            kv_bytes=pin,
            grouping_patched=False,
        )
        expected = pool(shape, pin)
        args = pinned_args(length, kv, seats=4, pin=pin)
        if tokens:
            args["speculative-config"] = speculative(method, models_dir)
        arms.append(
            {
                "name": f"memory-{format_}-kv-{kv}-{method}-{length}",
                "group": "memory",
                "what": "pool",
                "cards": 1,
                "need_gib": LOADED_GIB[format_] + DRAFTER_GIB[method] + pin / GIB + BESIDE_GIB,
                "model": str(models_dir / format_),
                "args": args,
                # vllm serve would start its engine as a new Python, whose imports take 20 s.
                "env": {"VLLM_USE_DEEP_GEMM": "0", "VLLM_WORKER_MULTIPROC_METHOD": "fork"},
                "limit_s": 150,
                "predicted": {"kv_tokens": expected.pool_tokens, "blocks": expected.num_blocks},
            }
        )
    return arms


def stock(models_dir: Path) -> list[dict[str, Any]]:
    """`vllm serve MODEL` at its defaults, for the ratios."""
    arm = smoke(models_dir)[0]
    return [{**arm, "name": "stock", "group": "stock", "bursts": BURSTS, "named_cards": [0]}]


def without_peers(inventory: HostInventory) -> HostInventory:
    """The machine as it is with `NCCL_P2P_DISABLE=1`: no card reads another's memory."""
    none = {"peer_read": False, "peer_write": False, "measured_peer_ok": False, "nvlink_lanes": 0, "nvswitch": False}
    return inventory.model_copy(update={"pairs": tuple(pair.model_copy(update=none) for pair in inventory.pairs)})


def with_others(inventory: HostInventory, gib: float) -> HostInventory:
    """The machine as it is while other programs hold `gib` GiB of every card: its plans leave them that."""
    used = int(gib * 1024)
    gpus = tuple(
        gpu.model_copy(update={"memory_used_mib": max(used, gpu.memory_used_mib or 0)}) for gpu in inventory.gpus
    )
    return inventory.model_copy(update={"gpus": gpus})


@dataclass(frozen=True)
class Share:
    """What a plan may use of the machine.

    Attributes:
        cards: by index.
        gib: of every card; other programs have the rest. 0: all of it.
        peers: whether the cards may reach each other; without, plan and engine are as on a machine where they cannot.
    """

    cards: tuple[int, ...] = (0,)
    gib: float = 0.0
    peers: bool = True

    def of(self, inventory: HostInventory) -> HostInventory:
        """The machine as a plan for this share sees it."""
        seen = inventory if self.peers else without_peers(inventory)
        total = min(gpu.memory_total_mib or 0 for gpu in inventory.gpus) / 1024
        return with_others(seen, total - self.gib) if self.gib else seen


def planned(
    inventory: HostInventory, workloads: Sequence[str], share: Share, named: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """What qwenlab plans for a share of the machine, as it emits it, but for dummy weights and a fixed acceptance.

    Dummy checkpoints are written where the plan looks for its own. `named` are settings beside the workload. Copies of
    one plan share the bursts' requests.
    """
    forbidden = {} if share.peers else {"NCCL_P2P_DISABLE": "1"}
    words = [*map(str, share.cards), *map(str, (named or {}).values()), *([] if share.peers else ["no-peer"])]
    seen = share.of(inventory)
    arms = []
    for workload in workloads:
        settings = load(
            {
                "qwen_workload": workload,
                "qwen_cards": [str(card) for card in share.cards],
                "qwen_nvlink_multicast": False,
                "qwen_served_model_names": ["q"],
                **(named or {}),
            }
        )
        host = plan(seen, settings)
        for number, engine in enumerate(host.engines):
            write(Path(engine.args["model"]), target_config(models()[MODEL], engine.checkpoint.format))
            args = dict(engine.args) | {"load-format": "dummy"}
            if engine.drafter and engine.speculation:
                drafter = drafter_config(drafters()["dflash2"], models()[MODEL], engine.drafter.format)
                write(Path(args["speculative-config"]["model"]), drafter)
            if engine.speculation:
                args["speculative-config"] = args["speculative-config"] | synthetic(engine.speculation)
            own = [gpu.index for gpu in inventory.gpus if gpu.uuid in engine.gpus]
            copy = [f"copy{number}"] if len(host.engines) > 1 else []
            arms.append(
                {
                    "name": "-".join(["plan", workload, *words, *copy]),
                    "group": "plan",
                    "what": "serve",
                    "release": "patched",
                    "cards": len(own),
                    "named_cards": own,
                    **({"need_gib": share.gib - max(rank.margin for rank in engine.memory)} if share.gib else {}),
                    "model": args.pop("model"),
                    "args": args,
                    "env": {**engine.env, **forbidden, **({"NCCL_DEBUG": "INFO"} if len(own) > 1 else {})},
                    "bursts": shared(BURSTS, len(host.engines), engine.max_num_seqs * engine.dp),
                    "predicted": {
                        "kv_tokens": engine.kv.tokens if engine.kv else None,
                        "speed": engine.predicted.model_dump() if engine.predicted else None,
                        "memory": [rank.model_dump() for rank in engine.memory],
                    },
                }
            )
    return arms


def shared(bursts: list[dict[str, Any]], copies: int, seats: int) -> list[dict[str, Any]]:
    """The bursts that one of several copies gets, as far as it has seats for them."""
    mine = [burst | {"concurrency": -(-burst["concurrency"] // copies)} for burst in bursts]
    return [burst for burst in mine if burst["concurrency"] <= seats]


def _drafts(models_dir: Path) -> dict[str, Any]:
    return speculative("dflash", models_dir) | SYNTHETIC


GROUPS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "smoke": smoke,
    "stock": stock,
    "memory": memory,
    "pipeline": lambda folder: layouts.pipelines(H200, folder / "fp8", _drafts(folder)),
    "refused": lambda folder: layouts.refused(H200, folder / "fp8", _drafts(folder)),
    "tensor": lambda folder: layouts.tensor(H200, folder / "fp8", _drafts(folder)),
    "equality": lambda folder: layouts.equality(folder / "small"),
}


def write_models(models_dir: Path) -> None:
    """Write the dummy checkpoints and drafters that the arms name."""
    model, drafter = models()[MODEL], drafters()["dflash2"]
    for format_ in ("bf16", "fp8", "w8a16", "int4-autoround"):
        write(models_dir / format_, target_config(model, format_))
    for format_ in ("bf16", "w4a16"):
        write(models_dir / f"drafter-{format_}", drafter_config(drafter, model, format_))


def main() -> None:
    """Write the models and the arms file."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--group", default=",".join(GROUPS))
    options.add_argument("--models", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--inventory", type=Path, help="`probe --json` of the machine: adds what qwenlab plans for it")
    options.add_argument("--workloads", default="chat,batch,long")
    options.add_argument("--card", default="0", help="the cards that the plans are for, with commas")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings of the plans")
    options.add_argument("--share", type=float, default=0.0, metavar="GIB", help="plans for cards with so much free")
    options.add_argument("--no-peer", action="store_true", help="plan and run as if the cards did not reach each other")
    given = options.parse_args()
    write_models(given.models)
    arms = [arm for name in filter(None, given.group.split(",")) for arm in GROUPS[name](given.models)]
    if given.inventory:
        inventory = HostInventory.model_validate(json.loads(given.inventory.read_text())["inventory"])
        named = dict(item.split("=", 1) for item in given.set)
        share = Share(tuple(int(card) for card in given.card.split(",")), given.share, peers=not given.no_peer)
        arms += planned(inventory, given.workloads.split(","), share, named)
    given.out.write_text(json.dumps(arms, indent=1) + "\n")
    print(f"{len(arms)} arms in {given.out}")


if __name__ == "__main__":
    main()

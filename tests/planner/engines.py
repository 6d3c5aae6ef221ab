"""Engines to apply rules to: cards by model, links by kind, shapes that boot unless a test changes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qwenlab.host_inventory import Ancestor, GpuPair, HostInventory
from qwenlab.planner.plan import EnginePlan, Speculation
from qwenlab.planner.render import render_engine
from qwenlab.planner.shape import Card, EngineShape
from qwenlab.settings import Settings

GIB_AND_CAPABILITY = {
    "RTX 3060": (12.0, (8, 6)),
    "RTX 3090": (23.56, (8, 6)),
    "RTX 4070 Ti SUPER": (15.6, (8, 9)),
    "RTX 4090": (23.5, (8, 9)),
    "RTX 5060 Ti": (15.6, (12, 0)),
    "RTX 5090": (31.4, (12, 0)),
    "H100": (79.2, (9, 0)),
    "RTX 2080 Ti": (21.5, (7, 5)),
}


def card(model: str, index: int, **changes: Any) -> Card:
    memory, capability = GIB_AND_CAPABILITY[model]
    return replace(
        Card(
            uuid=f"GPU-{index}",
            index=index,
            name=f"NVIDIA GeForce {model}",
            compute_capability=capability,
            memory_gib=memory,
            in_use_gib=0.0,
            bandwidth_gb_s=936.0,
            fp16_tflops=71.0,
            fp8_tflops=None,
            int8_tops=284.0,
            pcie_gb_s=16.0,
        ),
        **changes,
    )


def shape(*names: str, link: GpuPair | None = None, **changes: Any) -> EngineShape:
    """An engine that boots on these cards: int4 weights, bf16 KV and DFlash2 unless `changes` say otherwise."""
    cards = tuple(card(name, index) for index, name in enumerate(names))
    pairs = [(a, b) for a in range(len(cards)) for b in range(a + 1, len(cards))]
    links = tuple(link.model_copy(update={"a": a, "b": b}) for a, b in pairs) if link else ()
    start = EngineShape(
        checkpoint="int4-autoround",
        cards=cards,
        links=links,
        vllm="0.33.0",
        drafter="dflash2-w4a16",
        speculation=Speculation(method="dflash", tokens=7),
        kv_dtype="bfloat16",
        ssm_dtype="bfloat16",
        attention_backend="FLASH_ATTN",
        max_model_len=32_768,
        max_num_seqs=2,
    )
    return replace(start, **changes)


def without_drafter(*names: str, **changes: Any) -> EngineShape:
    return shape(*names, **{"drafter": None, "speculation": None, **changes})


def with_mtp(*names: str, **changes: Any) -> EngineShape:
    return shape(*names, **{"drafter": None, "speculation": Speculation(method="mtp", tokens=3), **changes})


NVLINK = GpuPair(a=0, b=1, nvlink_lanes=4)
SWITCH = GpuPair(a=0, b=1, nvlink_lanes=18, nvswitch=True)
NO_PEER = GpuPair(a=0, b=1, ancestor=Ancestor.PHB, peer_read=False, peer_refusal="CNS")


def peers(ancestor: Ancestor, ok: bool | None = None) -> GpuPair:
    return GpuPair(a=0, b=1, ancestor=ancestor, peer_read=True, peer_write=True, measured_peer_ok=ok)


def rendered(
    of: EngineShape, settings: Settings | None = None, inventory: HostInventory | None = None, index: int = 0
) -> EnginePlan:
    return render_engine(of, index, settings or Settings(), inventory or HostInventory())

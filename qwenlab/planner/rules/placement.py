"""Which cards an engine sees, in which order, and how its ranks are laid out on them."""

from __future__ import annotations

from typing import Any

from qwenlab.planner.plan import Evidence
from qwenlab.planner.rules.context import Context
from qwenlab.planner.rules.model import Effect, Rule, Topic, always, sets_env

MASTER_PORT = 29_500  # torch's customary rendezvous port; each engine of a host takes the next one


def _visible(context: Context) -> Effect:
    uuids = ",".join(card.uuid for card in context.cards)
    per_node = tuple({"CUDA_VISIBLE_DEVICES": ",".join(card.uuid for card in node)} for node in context.nodes)
    return Effect(env={"CUDA_VISIBLE_DEVICES": uuids}, nodes=per_node, says={"cards": _counted(len(context.cards))})


def _counted(cards: int) -> str:
    return "one card" if cards == 1 else f"{cards} cards"


def _tensor(context: Context) -> Effect:
    args: dict[str, Any] = {"tensor-parallel-size": context.shape.tp}
    return Effect(args=args, says={"tp": context.shape.tp})


def _pipeline(context: Context) -> Effect:
    return Effect(args={"pipeline-parallel-size": context.shape.pp}, says={"pp": context.shape.pp})


def _data(context: Context) -> Effect:
    return Effect(args={"data-parallel-size": context.shape.dp}, says={"dp": context.shape.dp})


def _partition(context: Context) -> Effect:
    layers = ",".join(str(count) for count in context.shape.partition or ())
    return Effect(env={"VLLM_PP_LAYER_PARTITION": layers}, says={"layers": layers})


def _nodes(context: Context) -> Effect:
    args = {"nnodes": len(context.nodes), "master-addr": "127.0.0.1", "master-port": MASTER_PORT + context.index}
    silicon = ", ".join(f"{major}.{minor}" for major, minor in context.capabilities)
    return Effect(args=args, env={"VLLM_HOST_IP": "127.0.0.1"}, says={"count": len(context.nodes), "silicon": silicon})


RULES = (
    Rule(
        id="pci-bus-order",
        topic=Topic.PLACEMENT,
        when="always",
        applies=always,
        then=sets_env(CUDA_DEVICE_ORDER="PCI_BUS_ID"),
        because="CUDA numbers the fastest card first; only PCI bus order names the cards as nvidia-smi does "
        "(a 5080 was paired with a 3080 without it)",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #216",
        evidence=Evidence.FIELD_REPORT,
        sets=("CUDA_DEVICE_ORDER",),
    ),
    Rule(
        id="visible-by-uuid",
        topic=Topic.PLACEMENT,
        when="always",
        applies=always,
        then=_visible,
        because="{cards} by UUID in rank order: an index changes when a card is added or fails, and then names the "
        "wrong card",
        source="syv-ai/HyperQwen docs/gotchas.md 53; noonghunna/club-3090 (pinning by UUID); vLLM 0.33.0 "
        "platforms/cuda.py device_control_id_to_physical_device_id",
        evidence=Evidence.FIELD_REPORT,
        sets=("CUDA_VISIBLE_DEVICES",),
    ),
    Rule(
        id="tensor-parallel",
        topic=Topic.PLACEMENT,
        when="tensor parallel over more than one card",
        applies=lambda c: c.shape.tp > 1,
        then=_tensor,
        because="TP={tp}: every layer is cut in {tp}, each card reads 1/{tp} of the weights per step",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #40",
        evidence=Evidence.MEASURED,
        sets=("tensor-parallel-size",),
    ),
    Rule(
        id="pipeline-parallel",
        topic=Topic.PLACEMENT,
        when="more than one pipeline stage",
        applies=lambda c: c.shape.pp > 1,
        then=_pipeline,
        because="PP={pp}: a link carries one hidden state per token instead of an all-reduce per layer, and each card "
        "holds as many layers as it has room for",
        source="ExTV/dual-gpus-vllm docs/how-it-works.md; syv-ai/HyperQwen docs/multi-gpu.md, #160",
        evidence=Evidence.MEASURED,
        sets=("pipeline-parallel-size",),
    ),
    Rule(
        id="data-parallel",
        topic=Topic.PLACEMENT,
        when="more than one replica behind one port",
        applies=lambda c: c.shape.dp > 1,
        then=_data,
        because="DP={dp}: one complete engine per card (group) behind one port, no all-reduce between them",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #190 (1.92x one card on a pair without peer access)",
        evidence=Evidence.MEASURED,
        sets=("data-parallel-size",),
    ),
    Rule(
        id="mp-executor",
        topic=Topic.PLACEMENT,
        when="more than one rank in an engine",
        applies=lambda c: c.shape.tp * c.shape.pp > 1,
        then=lambda c: Effect(args={"distributed-executor-backend": "mp"}),
        because="one worker process per card and no Ray: the ranks are on one host",
        source="ExTV/dual-gpus-vllm launchers",
        evidence=Evidence.MEASURED,
        sets=("distributed-executor-backend",),
    ),
    Rule(
        id="layer-partition",
        topic=Topic.PLACEMENT,
        when="more than one pipeline stage",
        applies=lambda c: c.shape.partition is not None and c.shape.pp > 1,
        then=_partition,
        because="{layers} layers per stage, solved from the cards' memory, bandwidth and the staircase of KV slots; "
        "vLLM's own split is even",
        source="ExTV/dual-gpus-vllm docs/benchmarks.md (partition trade-off); vLLM 0.33.0 distributed/utils.py",
        evidence=Evidence.DERIVED,
        sets=("VLLM_PP_LAYER_PARTITION",),
    ),
    Rule(
        id="node-per-stage",
        topic=Topic.PLACEMENT,
        when="pipeline stages of different compute capability",
        applies=lambda c: bool(c.nodes),
        then=_nodes,
        because="compute capabilities {silicon}: vLLM and its compiled kernels ask device 0 of the process what the "
        "card can do, so the engine runs as {count} vLLM nodes on this host, each seeing its own card only",
        source="vLLM 0.33.0 platforms/cuda.py get_device_capability (device 0 by default); "
        "ExTV/dual-gpus-vllm patches 13 and shim (the same cure by patching)",
        evidence=Evidence.DERIVED,
        sets=("nnodes", "node-rank", "master-addr", "master-port", "headless", "VLLM_HOST_IP"),
    ),
)

"""How ranks talk to each other: NCCL, vLLM's own all-reduce, and what the allocator must leave possible."""

from __future__ import annotations

from qwenlab.gpu_data import is_virtual
from qwenlab.host_inventory import Ancestor
from qwenlab.planner.plan import Evidence, Workload
from qwenlab.planner.rules.context import HOPPER, Context
from qwenlab.planner.rules.model import Effect, Rule, Topic, sets_env

# NCCL's default lets peers talk directly up to PXB. What it calls PHB is every path through one CPU, so nvidia-smi's
# NODE (two host bridges of one NUMA node) is PHB to NCCL; across sockets it is SYS. (NCCL 2.29 graph/topo.h, paths.cc)
P2P_LEVEL = {Ancestor.PHB: "PHB", Ancestor.NODE: "PHB", Ancestor.SYS: "SYS"}

WITHOUT_MULTICAST = {
    "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
ALL_REDUCE_OFF = ("disable-custom-all-reduce",)


def _tensor_parallel(context: Context) -> bool:
    return context.shape.tp > 1


def _old_kernel(context: Context) -> bool:
    return any(one.code == "kernel_too_old" for one in context.inventory.diagnoses)


def _without_custom_all_reduce(_: Context) -> Effect:
    return Effect(args={"disable-custom-all-reduce": True})


def _level(context: Context) -> Effect:
    ancestor = context.ancestor
    if ancestor is None:
        return Effect()
    return Effect(env={"NCCL_P2P_LEVEL": P2P_LEVEL[ancestor]}, says={"ancestor": ancestor.value})


def _virtual(context: Context) -> bool:
    return any(is_virtual(card.name) for card in context.cards)


def _allocator(expandable: bool) -> Effect:
    return Effect(env={"PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}"})


def _without_multicast(_: Context) -> Effect:
    return Effect(
        args={"compilation-config": {"pass_config": {"fuse_allreduce_rms": False}}},
        env=WITHOUT_MULTICAST,
    )


RULES = (
    Rule(
        id="nccl-p2p-level",
        topic=Topic.COMMUNICATION,
        when="tensor parallel, peer access granted, no bridge, and the path runs through a CPU (PHB, NODE, SYS)",
        applies=lambda c: c.peers and not c.bridged and c.ancestor in P2P_LEVEL,
        then=_level,
        because="the cards meet at {ancestor}: NCCL's default stops at PXB and would go through host memory although "
        "peer access works (+6 % decode at one stream, +13 % at four on 4x RTX 5060 Ti)",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #105, #254; NCCL 2.29 graph/paths.cc",
        evidence=Evidence.MEASURED,
        sets=("NCCL_P2P_LEVEL",),
    ),
    Rule(
        id="nccl-p2p-off",
        topic=Topic.COMMUNICATION,
        when="tensor parallel and the live peer test between the cards did not pass",
        applies=lambda c: _tensor_parallel(c) and c.peer_test_failed,
        then=sets_env(NCCL_P2P_DISABLE="1"),
        because="the value-checked test between these cards did not pass: a wrong sum would be silent and a hang would "
        "stop the engine, so NCCL goes through host memory",
        source="noonghunna/club-3090 scripts/p2p-validate.sh, #922",
        evidence=Evidence.FIELD_REPORT,
        sets=("NCCL_P2P_DISABLE",),
    ),
    Rule(
        id="nccl-low-latency",
        topic=Topic.COMMUNICATION,
        when="tensor parallel without peer access, workload chat or edit",
        applies=lambda c: _tensor_parallel(c) and not c.peers and c.workload in (Workload.CHAT, Workload.EDIT),
        then=sets_env(NCCL_PROTO="LL"),
        because="without peer access a decode step waits for small all-reduces through host memory; the LL protocol "
        "got back a third of the loss at one stream (113.7 -> 127.0 tok/s on 2x RTX 4090)",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #190",
        evidence=Evidence.FIELD_REPORT,
        sets=("NCCL_PROTO",),
    ),
    Rule(
        id="nccl-without-cumem",
        topic=Topic.COMMUNICATION,
        when="more than one card in an engine and a kernel before 5.4",
        applies=lambda c: c.shape.tp * c.shape.pp > 1 and _old_kernel(c),
        then=sets_env(NCCL_CUMEM_ENABLE="0"),
        because="NCCL's cuMem allocations fail, or take very long at start, on kernels before 5.4",
        source="vllm-project/vllm #5405, #19045",
        evidence=Evidence.FIELD_REPORT,
        sets=("NCCL_CUMEM_ENABLE",),
    ),
    Rule(
        id="custom-all-reduce-needs-peers",
        topic=Topic.COMMUNICATION,
        when="tensor parallel without peer access between every two cards of a group",
        applies=lambda c: _tensor_parallel(c) and not c.peers,
        then=_without_custom_all_reduce,
        because="vLLM's own all-reduce reads the other card's memory, which these cards may not do",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #190; vLLM 0.33.0 custom_all_reduce.py (_can_p2p)",
        evidence=Evidence.MEASURED,
        sets=ALL_REDUCE_OFF,
    ),
    Rule(
        id="custom-all-reduce-two-pcie-cards",
        topic=Topic.COMMUNICATION,
        when="tensor parallel over more than two cards with peer access but without NVLink",
        applies=lambda c: c.shape.tp > 2 and c.peers and not c.bridged,
        then=_without_custom_all_reduce,
        because="vLLM's own all-reduce does not support more than two PCIe-only cards and would only warn at boot",
        source="vLLM 0.33.0 distributed/device_communicators/custom_all_reduce.py; syv-ai/HyperQwen docs/multi-gpu.md, "
        "#105",
        evidence=Evidence.MEASURED,
        sets=ALL_REDUCE_OFF,
    ),
    Rule(
        id="custom-all-reduce-unproven-driver",
        topic=Topic.COMMUNICATION,
        when="tensor parallel over two consumer Blackwell cards whose peer access no live test has checked",
        applies=lambda c: c.shape.tp == 2 and c.peers and not c.bridged and not c.custom_all_reduce and not c.nodes,
        then=_without_custom_all_reduce,
        because="on consumer Blackwell with a patched driver vLLM's own all-reduce faulted even at TP=2; NCCL keeps "
        "most of the gain (run the peer test to let it back in: +6 to +7 % at one stream where it works)",
        source="syv-ai/HyperQwen docs/multi-gpu.md, #105 against #163",
        evidence=Evidence.FIELD_REPORT,
        sets=ALL_REDUCE_OFF,
    ),
    Rule(
        id="fixed-segments-for-custom-all-reduce",
        topic=Topic.COMMUNICATION,
        when="tensor parallel with vLLM's own all-reduce on",
        applies=lambda c: c.custom_all_reduce and not c.inventory.wsl2 and not _virtual(c),
        then=lambda _: _allocator(False),
        because="expandable segments have no IPC handle, so graph capture with vLLM's own all-reduce aborts; fixed "
        "segments cost nothing measurable and keep its +6.4 % at one stream",
        source="syv-ai/HyperQwen docs/gotchas.md 3, docs/multi-gpu.md, #159, #163",
        evidence=Evidence.MEASURED,
        sets=("PYTORCH_CUDA_ALLOC_CONF",),
    ),
    Rule(
        id="fixed-segments-on-wsl2",
        topic=Topic.COMMUNICATION,
        when="WSL2",
        applies=lambda c: c.inventory.wsl2,
        then=lambda _: _allocator(False),
        because="WSL2's driver refuses the virtual-memory calls that expandable segments need",
        source="syv-ai/HyperQwen docs/gotchas.md 3; noonghunna/club-3090 docs/HARDWARE.md",
        evidence=Evidence.MEASURED,
        sets=("PYTORCH_CUDA_ALLOC_CONF",),
    ),
    Rule(
        id="fixed-segments-on-virtual-cards",
        topic=Topic.COMMUNICATION,
        when="a share of a card that a hypervisor hands out (vGPU)",
        applies=lambda c: _virtual(c) and not c.inventory.wsl2,
        then=lambda _: _allocator(False),
        because="on a virtual card the calls that expandable segments need are answered with 'operation not supported'",
        source="unslothai/unsloth 1446; stored public report of a GRID A100D-40C (71181867140)",
        evidence=Evidence.FIELD_REPORT,
        sets=("PYTORCH_CUDA_ALLOC_CONF",),
    ),
    Rule(
        id="expandable-segments",
        topic=Topic.COMMUNICATION,
        when="bare metal or VM with cards of its own, without vLLM's own all-reduce",
        applies=lambda c: not c.custom_all_reduce and not c.inventory.wsl2 and not _virtual(c),
        then=lambda _: _allocator(True),
        because="less fragmentation at the edge of the card: without it high memory use ends in an OOM after hours",
        source="syv-ai/HyperQwen docs/gotchas.md 3; ExTV/dual-gpus-vllm launchers",
        evidence=Evidence.MEASURED,
        sets=("PYTORCH_CUDA_ALLOC_CONF",),
    ),
    Rule(
        id="no-nvlink-multicast",
        topic=Topic.COMMUNICATION,
        when="tensor parallel on Hopper or data-centre Blackwell while NVLink multicast is not allowed",
        applies=lambda c: _tensor_parallel(c) and not c.multicast and HOPPER <= c.lowest < (12, 0),
        then=_without_multicast,
        because="NVLink multicast can put the host's GPUs out of service for everybody on a shared machine; three "
        "libraries use it by themselves, and vLLM's FlashInfer all-reduce does not heed NCCL's switch",
        source="vLLM 0.33.0 envs.py (VLLM_ALLREDUCE_USE_FLASHINFER), distributed/device_communicators/; NCCL, PyTorch "
        "and NVSHMEM documentation of their variables",
        evidence=Evidence.MEASURED,
        sets=("compilation-config", *WITHOUT_MULTICAST),
    ),
)

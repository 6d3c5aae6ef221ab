"""Kernels, CUDA graphs and compilation."""

from __future__ import annotations

from collections.abc import Callable

from qwenlab.planner.plan import Evidence, Workload
from qwenlab.planner.rules.context import ADA, HOPPER, ComputeCapability, Context
from qwenlab.planner.rules.model import Effect, Rule, Topic, always, sets_env
from qwenlab.planner.shape import Card

OPTION = "compilation-config"
CONSUMER_BLACKWELL = 12
CAPTURE_LIMIT = 64
CAPTURE_LIMIT_DATA_CENTRE = 512  # vLLM's own
CAPTURE_WITHOUT_DRAFTER = 32
# Rows at which the tiles of CUTLASS's FP8 kernels on compute capability 9.0 are full enough (bench/gpu/rows.py).
FULL_TILES = (1, 2, 4, 8, 16, 48, 64, 96, 112, 128, 256, 512)
DATA_CENTRE_GIB = 48.0
PLENTY_OF_RAM_GIB = 64.0
GIB_PER_COMPILER = 8.0
# The two gate projections of a recurrent layer, in 16 bit in every published quantization too, and the vision tower.
STAY_16_BIT = ("re:.*in_proj_[ab]$", "re:.*visual.*")
WEIGHT_ONLY_FP8 = "MarlinFP8ScaledMMLinearKernel,HummingFP8ScaledMMLinearKernel"  # what stands before Triton's
BUILD_VARIABLES = ("MAX_JOBS", "TORCHINDUCTOR_COMPILE_THREADS")


def _largest_capture(context: Context) -> int:
    roomy = min(card.memory_gib for card in context.cards) >= DATA_CENTRE_GIB
    limit = CAPTURE_LIMIT_DATA_CENTRE if roomy else CAPTURE_LIMIT
    size = min(limit, context.shape.max_num_seqs * (context.draft_tokens + 1))
    if not roomy and context.workload is not Workload.BATCH and context.method != "dflash":
        size = CAPTURE_WITHOUT_DRAFTER
    return size


def _capture(context: Context) -> Effect:
    size = _largest_capture(context)
    return Effect(args={OPTION: {"max_cudagraph_capture_size": size}}, says={"size": size})


def _fills_tiles(context: Context) -> bool:
    hopper = all(card.compute_capability == HOPPER for card in context.cards)
    return hopper and context.checkpoint.kernels == "fp8-channel"


def _full_tiles(context: Context) -> Effect:
    """Graphs of whole requests at or just below the ends of tiles, the largest for all seats."""
    largest, each = _largest_capture(context), context.draft_tokens + 1
    sizes = {max(each, end // each * each) for end in FULL_TILES if end < largest} | {largest}
    return Effect(args={OPTION: {"cudagraph_capture_sizes": sorted(sizes)}}, says={"size": largest})


def _piecewise(context: Context) -> bool:
    return context.shape.pp > 1 or (context.method == "mtp" and context.shape.attention_backend == "FLASHINFER")


def _consumer_blackwell(capability: ComputeCapability) -> bool:
    return capability[0] == CONSUMER_BLACKWELL


def _ada(capability: ComputeCapability) -> bool:
    return capability == ADA


def _disabled(context: Context, kernels: str, silicon: Callable[[ComputeCapability], bool]) -> Effect:
    """Switch kernels off on some silicon: for the whole engine, or for the nodes whose card it is."""
    variable = "VLLM_DISABLED_KERNELS"
    if not context.nodes:
        return Effect(env={variable: kernels})
    per_node = tuple({variable: kernels} if silicon(_capability(node)) else {} for node in context.nodes)
    return Effect(nodes=per_node)


def _capability(node: tuple[Card, ...]) -> ComputeCapability:
    return node[0].compute_capability


def _dsl_arch(context: Context) -> Effect:
    per_node = []
    for node in context.nodes:
        major, minor = _capability(node)
        known = (major, minor) >= HOPPER
        per_node.append({"CUTE_DSL_ARCH": f"sm_{major}{minor}a"} if known else {})
    return Effect(nodes=tuple(per_node))


def _jobs(context: Context) -> Effect:
    ram = context.inventory.ram_total_gib or GIB_PER_COMPILER
    jobs = max(1, min(int(ram // GIB_PER_COMPILER), context.inventory.cpu_count or 1))
    return Effect(env={name: str(jobs) for name in BUILD_VARIABLES}, says={"jobs": jobs, "ram": f"{ram:.0f}"})


RULES = (
    Rule(
        id="graph-capture-cap",
        topic=Topic.KERNELS,
        when="always, but for the next rule",
        applies=lambda c: not _fills_tiles(c),
        then=_capture,
        because="CUDA graphs up to {size} tokens per step, enough for every seat's verify block; larger captures take "
        "memory that the first concurrent batch then lacks",
        source="syv-ai/HyperQwen docs/gotchas.md 34, single-user and batch launchers",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="graphs-of-full-tiles",
        topic=Topic.KERNELS,
        when="FP8 weights with a scale per channel on compute capability 9.0",
        applies=_fills_tiles,
        then=_full_tiles,
        because="CUDA graphs up to {size} tokens per step, and none whose rows leave a tile of CUTLASS's half empty: "
        "vLLM pads a step to the next graph, and 17 rows take 9.9 ms of GEMMs, 32 take 8.9, 48 take 7.5. With two "
        "drafts four requests get 733 tok/s instead of 616, eight 1,337 instead of 1,233; chat's 32 rows gain nothing "
        "and lose nothing",
        source="vLLM 0.33.0 on an NVIDIA H200 (docs/gpu_bench.md, bench/gpu/rows.py)",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="fused-norm-and-activation",
        topic=Topic.KERNELS,
        when="always",
        applies=always,
        then=lambda _: Effect(args={OPTION: {"custom_ops": ["+rms_norm", "+silu_and_mul"]}}),
        because="vLLM's own RMS norm and SiLU kernels are faster here than what Inductor generates",
        source="syv-ai/HyperQwen docs/optimizations.md",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="piecewise-graphs",
        topic=Topic.KERNELS,
        when="MTP on FlashInfer, or a pipeline",
        applies=_piecewise,
        then=lambda _: Effect(args={OPTION: {"cudagraph_mode": "PIECEWISE"}}),
        because="full graphs make drafting on FlashInfer slower than none (45 against 140 to 155 tok/s on an RTX "
        "5090), and no pipeline was measured with them",
        source="vllm-project/vllm #40880; ExTV/dual-gpus-vllm docs/how-it-works.md; syv-ai/HyperQwen SPEC=mtp CTX=long",
        evidence=Evidence.MEASURED,
        sets=(OPTION,),
    ),
    Rule(
        id="nvfp4-kernel-on-consumer-blackwell",
        topic=Topic.KERNELS,
        when="NVFP4 weights on compute capability 12.x",
        applies=lambda c: c.checkpoint.format == "nvfp4" and any(map(_consumer_blackwell, c.capabilities)),
        then=lambda c: _disabled(c, "FlashInferCutlassNvFp4LinearKernel", _consumer_blackwell),
        because="with FlashInfer's CUTLASS kernel off vLLM picks the b12x one: 102 instead of 150 microseconds per MLP "
        "at 8 rows on an RTX 5090",
        source="ExTV/dual-gpus-vllm docs/how-it-works.md",
        evidence=Evidence.MEASURED,
        sets=("VLLM_DISABLED_KERNELS",),
    ),
    Rule(
        id="triton-block-fp8-where-tuned",
        topic=Topic.KERNELS,
        when="FP8 weights on compute capability 8.9, tuned_block_fp8 set",
        applies=lambda c: c.checkpoint.format == "fp8" and c.tuned_block_fp8 and any(map(_ada, c.capabilities)),
        then=lambda c: _disabled(c, WEIGHT_ONLY_FP8, _ada),
        because="with the weight-only kernels off vLLM takes its Triton block-FP8 kernel: tuned on the card, prefill "
        "takes 12 to 18 % less time and a decoding step 1 % more; untuned it loses 11 % and 9 %",
        source="ExTV/dual-gpus-vllm patch 14 (the same by another order); vLLM 0.33.0 "
        "model_executor/kernels/linear/__init__.py _POSSIBLE_FP8_BLOCK_KERNELS",
        evidence=Evidence.MEASURED,
        sets=("VLLM_DISABLED_KERNELS",),
    ),
    Rule(
        id="quantised-while-loading",
        topic=Topic.KERNELS,
        when="a checkpoint that vLLM quantises while it loads it",
        applies=lambda c: c.checkpoint.online is not None,
        then=lambda c: Effect(
            args={"quantization": c.checkpoint.online, "quantization-config": {"ignore": list(STAY_16_BIT)}}
        ),
        because="the 16-bit files get a scale per output channel as they are loaded: on compute capability 9.0 these "
        "GEMMs take 7.5 ms a step of 64 rows where block scales take 12.2, and a DFlash2 step takes 12.7 instead of "
        "14.0; gates and vision stay in 16 bit",
        source="vLLM 0.33.0 config/quantization.py; on an NVIDIA H200 (docs/gpu_bench.md)",
        evidence=Evidence.MEASURED,
        sets=("quantization", "quantization-config"),
    ),
    Rule(
        id="no-deep-gemm-warm-up-on-hopper",
        topic=Topic.KERNELS,
        when="FP8 weights on compute capability 9.0",
        applies=lambda c: c.checkpoint.format == "fp8" and HOPPER in c.capabilities,
        then=sets_env(VLLM_USE_DEEP_GEMM="0"),
        because="DeepGEMM's warm-up compiles 1,496 kernels before the first answer, about ten minutes on 32 cores; "
        "CUTLASS's block FP8 kernel comes compiled, and the patch cutlass-rows-sm90 keeps it fast at any row count",
        source="vLLM 0.33.0 on an NVIDIA H200 (bench/gpu)",
        evidence=Evidence.MEASURED,
        sets=("VLLM_USE_DEEP_GEMM",),
    ),
    Rule(
        id="no-deep-gemm-on-consumer-blackwell",
        topic=Topic.KERNELS,
        when="FP8 weights on compute capability 12.x",
        applies=lambda c: c.checkpoint.format == "fp8" and any(map(_consumer_blackwell, c.capabilities)),
        then=sets_env(VLLM_USE_DEEP_GEMM="0"),
        because="DeepGEMM has no kernels for consumer Blackwell",
        source="noonghunna/club-3090 docs/HARDWARE.md",
        evidence=Evidence.FIELD_REPORT,
        sets=("VLLM_USE_DEEP_GEMM",),
    ),
    Rule(
        id="no-autotune-on-mixed-ranks",
        topic=Topic.KERNELS,
        when="cards of different compute capability in one engine",
        applies=lambda c: c.mixed_silicon,
        then=lambda _: Effect(args={"no-enable-flashinfer-autotune": True}),
        because="FlashInfer's autotuner is a collective that only ranks from 9.0 on enter: a mixed pair hangs at boot "
        "with nothing in the log",
        source="ExTV/dual-gpus-vllm README (troubleshooting); vLLM warmup/kernel_warmup.py flashinfer_autotune",
        evidence=Evidence.MEASURED,
        sets=("no-enable-flashinfer-autotune",),
    ),
    Rule(
        id="dsl-architecture-per-node",
        topic=Topic.KERNELS,
        when="one node per stage, cards from compute capability 9.0 on",
        applies=lambda c: bool(c.nodes) and any(capability >= HOPPER for capability in c.capabilities),
        then=_dsl_arch,
        because="the CuTe DSL compiles for the architecture that the variable names; each node names its own card's",
        source="ExTV/dual-gpus-vllm launchers (CUTE_DSL_ARCH=sm_120a)",
        evidence=Evidence.MEASURED,
        sets=("CUTE_DSL_ARCH",),
    ),
    Rule(
        id="sampler-without-nvcc",
        topic=Topic.KERNELS,
        when="no nvcc on the host",
        applies=lambda c: c.inventory.nvcc is None,
        then=sets_env(VLLM_USE_FLASHINFER_SAMPLER="0"),
        because="FlashInfer's sampler is compiled by nvcc at the first request; without one vLLM's own sampler serves",
        source="syv-ai/HyperQwen launchers, docs/install.md",
        evidence=Evidence.MEASURED,
        sets=("VLLM_USE_FLASHINFER_SAMPLER",),
    ),
    Rule(
        id="compile-jobs-by-ram",
        topic=Topic.KERNELS,
        when="less than 64 GiB of host memory",
        applies=lambda c: c.inventory.ram_total_gib is not None and c.inventory.ram_total_gib < PLENTY_OF_RAM_GIB,
        then=_jobs,
        because="{jobs} compiler processes at once: each takes 1.5 to 4 GiB, and the host has {ram} GiB for them, the "
        "loader and everything else",
        source="ExTV/dual-gpus-vllm docs/how-it-works.md (3 jobs at 31 GiB)",
        evidence=Evidence.FIELD_REPORT,
        sets=BUILD_VARIABLES,
    ),
    Rule(
        id="patient-first-boot",
        topic=Topic.KERNELS,
        when="always",
        applies=always,
        then=sets_env(VLLM_ENGINE_READY_TIMEOUT_S="1800"),
        because="the first boot compiles kernels (367 s for FlashInfer's top-k alone on two cores), beyond vLLM's own "
        "ten minutes",
        source="vLLM 0.33.0 envs.py (600 s); noonghunna/club-3090 (boot 340 to 420 s); built with nvcc 13.0 for sm_90a",
        evidence=Evidence.MEASURED,
        sets=("VLLM_ENGINE_READY_TIMEOUT_S",),
    ),
)

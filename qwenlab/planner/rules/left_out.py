"""Rules that the sources state and that this table does not carry, each with the reason."""

from __future__ import annotations

from qwenlab.planner.rules.model import LeftOut

HYPERQWEN = "syv-ai/HyperQwen"
CLUB = "noonghunna/club-3090"
DUAL = "ExTV/dual-gpus-vllm"

LEFT_OUT = (
    LeftOut(
        "VLLM_OFFLOAD_KEEP_SHM=1 on every engine of a host with two",
        f"{HYPERQWEN} docs/multi-gpu.md, #33, #104",
        "it tells HyperQwen's launcher not to delete the other engine's shared memory. vLLM does not read it, and "
        "nothing here deletes files in /dev/shm by pattern, so two engines of a host cannot hurt each other that way.",
    ),
    LeftOut(
        "CPU tier of the KV cache (kv-offloading-size) and its /dev/shm limits",
        f"{HYPERQWEN} docs/gotchas.md 38, 62; docs/vllm-0.31.md",
        "no plan uses the tier: under 0.32.0 a full tier serves nothing, and sizes depend on the owner's RAM. It can "
        "be forced with qwen_engine_args; expandable segments must then be off, which vLLM itself checks.",
    ),
    LeftOut(
        "Lookup drafting beside DFlash2, 15 draft tokens, adaptive verify length (VLLM_DFLASH2_*)",
        f"{HYPERQWEN} docs/gotchas.md 18, 19, 23, 24",
        "a feature of HyperQwen's own patch that is not in the series; without it tokens 8 to 15 are never accepted.",
    ),
    LeftOut(
        "Split-KV verify kernels (VLLM_SPEC_DECODE_ATTN, VLLM_INT4_MQ_3D, VLLM_PREFILL_ATTN)",
        f"{HYPERQWEN} docs/gotchas.md 12, 17, 40, 57",
        "patches of HyperQwen; vLLM 0.33's TRITON_ATTN splits KV for up to 8 query tokens by itself.",
    ),
    LeftOut(
        "KVarN KV cache (kvarn_k4v2_g128) and its prefix-match unit",
        f"{HYPERQWEN} kvarn/README.md, docs/gotchas.md 33, 35, 60",
        "a separate fork of the attention backend for versions up to 0.31, with open corruption reports.",
    ),
    LeftOut(
        "TurboQuant KV (3 and 4 bit)",
        f"{CLUB} docs/HARDWARE.md, archive",
        "loses recall at every depth on checkpoints without scales, and every one-card form failed the soak test. "
        "Forcing it is warned about.",
    ),
    LeftOut(
        "int8 activations (VLLM_MARLIN_INPUT_DTYPE, W4A8)",
        f"{HYPERQWEN} docs/gotchas.md 5, 16; {CLUB} (dual-fast)",
        "needs three patches that are not in the series (layer choice, negative scales, zero points) and costs decode "
        "speed on one card; it gains prefill only.",
    ),
    LeftOut(
        "VLLM_VISION_CPU_OFFLOAD_GB",
        f"{HYPERQWEN} docs/gotchas.md 8",
        "a variable of HyperQwen's patch; stock vLLM does not know it. The tower's 0.86 GiB are in the budget instead.",
    ),
    LeftOut(
        "MTP_DRAFT_VOCAB: shortened vocabulary of the MTP head",
        f"{HYPERQWEN} docs/gotchas.md 11, 61",
        "a patch and a prepared checkpoint; it fails for languages that the list lacks.",
    ),
    LeftOut(
        "VLLM_MAMBA_ALIGN_KEEP_CHECKPOINTS=1",
        f"{HYPERQWEN} docs/gotchas.md 44",
        "a patch without a measured gain; keeping a state per block covers the case.",
    ),
    LeftOut(
        "Sparser retention of recurrent states (13,056 or 24,576 tokens)",
        f"{HYPERQWEN} docs/gotchas.md 60",
        "measured with KVarN at one length only, and two reports disagree; one block is the value that both peers use "
        "elsewhere. qwen_engine_args can set it.",
    ),
    LeftOut(
        "Triton block-FP8 before Marlin on compute capability 8.9, untuned",
        f"{DUAL} patch 14",
        "faster only with kernel configurations tuned on the very card (one card was); untuned it costs 11 % prefill "
        "and 9 % decode, and vLLM's own order already takes Marlin. Whoever has the configurations sets "
        "tuned_block_fp8.",
    ),
    LeftOut(
        "LD_PRELOAD shim and patch 13 for the compute capability of the own card",
        f"{DUAL} shim/, patch 13",
        "from vLLM 0.32 on the preloaded function is inlined and the shim does nothing; one node per stage gives each "
        "process its own card without a patch.",
    ),
    LeftOut(
        "Mamba manager honours the drop of the last block (patch 10)",
        f"{DUAL} patch 10; vllm-project/vllm #43559",
        "from 0.32 on the coordinator hands over the shortened length, so a longer hit cannot come out.",
    ),
    LeftOut(
        "FLASHINFER_DISABLE_VERSION_CHECK=1",
        f"{HYPERQWEN} launchers",
        "for virtual environments with mismatched FlashInfer packages; the release's lock pins matching ones.",
    ),
    LeftOut(
        "CUDA_HOME",
        f"{HYPERQWEN} launchers; {DUAL} launchers",
        "a path inside the release (its pinned nvcc equals the CUDA runtime), so the service sets it, not the plan.",
    ),
    LeftOut(
        "curand headers of the CUDA toolkit",
        f"{HYPERQWEN} #105",
        "a package of the host, installed with the CUDA toolkit; no argument or variable of the engine.",
    ),
    LeftOut(
        "Persistent compile caches, cold against warm boots",
        f"{HYPERQWEN} docs/gotchas.md 2, 48",
        "the service user's home keeps them; a pinned pool does not depend on them.",
    ),
    LeftOut(
        "Waiting for free cards before the start",
        f"{HYPERQWEN} docs/gotchas.md 2",
        "the unit does it (qwen-engine@.service), not an argument.",
    ),
    LeftOut(
        "Deleting vLLM's peer-access cache after a change of topology",
        f"{CLUB} docs/HARDWARE.md",
        "the cache is read only with VLLM_SKIP_P2P_CHECK=0; by default vLLM asks the driver.",
    ),
    LeftOut(
        "NCCL_CUMEM_ENABLE=0, NCCL_P2P_DISABLE=1 wherever there is no NVLink",
        f"{CLUB} composes",
        "NCCL falls back by itself where the driver refuses peer access, and switching peers off where they work costs "
        "2 to 13 %. Off only after a failed peer test.",
    ),
    LeftOut(
        "OMP_NUM_THREADS=1, VLLM_WORKER_MULTIPROC_METHOD=spawn",
        f"{CLUB} composes",
        "vLLM sets both itself where they are needed.",
    ),
    LeftOut(
        "PCIe switches of the driver for peers on 50-series cards, ReBAR, Above 4G, ACS, iommu=pt",
        f"{CLUB} docs/HARDWARE.md",
        "firmware and kernel settings; the inventory reports them as findings.",
    ),
    LeftOut(
        "Run:ai streamer as loader on hosts with little memory",
        f"{HYPERQWEN} docs/gotchas.md 41",
        "the release's lock does not carry the package; mapped loading is asked for instead and the owner warned.",
    ),
    LeftOut(
        "Marlin repack on the CPU (VLLM_MARLIN_REPACK_STAGED) for compute capability 8.0",
        f"{HYPERQWEN} docs/gotchas.md 37",
        "a patch for one family of mining cards.",
    ),
    LeftOut(
        "DSpark and EAGLE drafters",
        f"{HYPERQWEN} fork docs/long-context.md",
        "slower than DFlash2 on the same card (3.19 against 3.77 tokens per step).",
    ),
    LeftOut(
        "Fewer drafts as more requests run (num_speculative_tokens_per_batch_size)",
        "vLLM 0.33.0 config/speculative.py; run on an NVIDIA H200 (docs/gpu_bench.md)",
        "it works, graphs included. Where plans draft for many requests they draft the number that suits full seats, "
        "and the states of a longer draft would cost seats; for the six or eight seats of chat the figures published "
        "for an RTX 3090 leave about 6 %. vLLM switches it off with data parallelism. qwen_engine_args can set it.",
    ),
    LeftOut(
        "Sampling defaults (temperature, top-p, min_p 0)",
        f"{DUAL} launchers; {CLUB} composes",
        "the checkpoint's generation_config.json holds the model makers' values and vLLM reads it; min_p is 0 there.",
    ),
    LeftOut(
        "A third-party chat template",
        f"{DUAL} README; {CLUB} docs",
        "the model's own template serves; another is one line of qwen_engine_args.",
    ),
    LeftOut(
        "--trust-remote-code",
        f"{CLUB} composes",
        "runs code from the hub; the model class is vLLM's own.",
    ),
    LeftOut(
        "VLLM_ENABLE_STARTUP_PLAN=1 (vLLM's own cure for cold profiling)",
        "vLLM 0.33.0 envs.py",
        "the pool is pinned, so nothing is profiled.",
    ),
    LeftOut(
        "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC",
        "vLLM 0.33.0 envs.py",
        "opt-in while vLLM qualifies it; nobody measured it on these cards.",
    ),
    LeftOut(
        "VLLM_MARLIN_USE_ATOMIC_ADD, NCCL tuning by hand",
        f"{CLUB} docs",
        "no published gain on this model.",
    ),
    LeftOut(
        "1M tokens of context at TP=4",
        f"{HYPERQWEN} #229",
        "beyond the checkpoint's own 262,144 positions; needs a changed model configuration.",
    ),
    LeftOut(
        "Docker's GPU_COUNT, shared memory and IPC namespaces",
        f"{HYPERQWEN} docs/docker.md; {CLUB} composes",
        "engines run as systemd units, not in containers.",
    ),
    LeftOut(
        "One more recurrent state for prompts (prefix-match unit), prompt_logprobs limits",
        f"{HYPERQWEN} docs/gotchas.md 9, 46",
        "concern quality measurements, not serving.",
    ),
    LeftOut(
        "Weight classes by name of the card",
        f"{CLUB} profiles",
        "cards are judged by memory and compute capability; names are compared for power advice only.",
    ),
)

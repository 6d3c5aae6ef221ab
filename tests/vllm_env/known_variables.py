"""Variables of NCCL, PyTorch, CUDA, NVSHMEM and the CuTe DSL that plans may set: name, and where it is documented.

vLLM's own are not listed: its registry (`vllm.envs.environment_variables`) is asked.
"""

from __future__ import annotations

NCCL = "NCCL user guide, Environment Variables"

KNOWN = {
    "CUDA_DEVICE_ORDER": "CUDA C++ Programming Guide, CUDA environment variables",
    "CUDA_VISIBLE_DEVICES": "CUDA C++ Programming Guide, CUDA environment variables",
    "NCCL_P2P_LEVEL": NCCL,
    "NCCL_P2P_DISABLE": NCCL,
    "NCCL_PROTO": NCCL,
    "NCCL_NVLS_ENABLE": NCCL,
    "NVSHMEM_DISABLE_NVLS": "NVSHMEM documentation, Environment Variables",
    "PYTORCH_CUDA_ALLOC_CONF": "PyTorch documentation, CUDA semantics (optimizing memory usage)",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "PyTorch torch/csrc/distributed/c10d/symm_mem/DMAConnectivity.cpp",
    "TORCHINDUCTOR_COMPILE_THREADS": "PyTorch torch/_inductor/config.py decide_compile_threads",
    "CUTE_DSL_ARCH": "CUTLASS documentation, CuTe DSL (environment variables)",
}

# What the variables may be, where the set is closed.
VALUES = {
    "CUDA_DEVICE_ORDER": {"PCI_BUS_ID", "FASTEST_FIRST"},
    "NCCL_P2P_LEVEL": {"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"},
    "NCCL_PROTO": {"LL", "LL128", "Simple"},
    "NCCL_P2P_DISABLE": {"0", "1"},
    "NCCL_NVLS_ENABLE": {"0", "1", "2"},
    "NVSHMEM_DISABLE_NVLS": {"0", "1"},
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": {"0", "1"},
    "PYTORCH_CUDA_ALLOC_CONF": {"expandable_segments:True", "expandable_segments:False"},
    "CUTE_DSL_ARCH": {"sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"},
}

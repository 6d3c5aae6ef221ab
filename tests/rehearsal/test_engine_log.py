# ruff: noqa: E501  (recorded lines)
"""vLLM's and NCCL's start-up lines, as versions 0.30 to 0.33 print them."""

import pytest

from qwenlab.rehearsal.engine_log import EngineLog, RankUse, parse

START = """\
INFO 11-29 [version.py] vLLM API server version 0.33.0
(Worker_TP0 pid=7) INFO 11-29 10:00:01 [cuda.py:509] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].
(Worker_TP1 pid=8) INFO 11-29 10:00:01 [cuda.py:509] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].
(Worker_TP0 pid=7) INFO 11-29 10:00:04 [model_runner.py:429] Model loading took 25.17 GiB memory and 3.120000 seconds
(Worker_TP1 pid=8) INFO 11-29 10:00:04 [model_runner.py:429] Model loading took 25.17 GiB memory and 3.200000 seconds
(Worker pid=7) INFO 11-29 [qwen_gdn_linear_attn.py:729] GDN spec decode kernel: triton
(Worker pid=7) INFO 11-29 [qwen_gdn_linear_attn.py] Falling back to the Triton GDN spec decode path: needs BF16 or FP32 state
(Worker_TP0 pid=7) INFO 11-29 [cuda_communicator.py:354] Using ['CUSTOM'] all-reduce backends (in dispatch order) for group 'tp:0' out of potential backends: ['NCCL_SYMM_MEM'].
lab:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
lab:7:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
(EngineCore pid=6) INFO [kv_cache_planning.py:538] Add 4 padding layers, may waste at most 25.00% KV cache memory
(Worker_TP0 pid=7) INFO 11-29 [gpu_worker.py:773] Available KV cache memory: 100.33 GiB
(EngineCore pid=6) INFO 11-29 [kv_cache_utils.py:1148] GPU KV cache size: 3,003,733 tokens, Maximum concurrency for 65,536 tokens per request: 45.83x
(Worker_TP0 pid=7) INFO 11-29 [monitor.py:20] torch.compile took 26.50 s in total
(Worker_TP0 pid=7) INFO 11-29 [model_runner.py:1164] Graph capturing finished in 14 secs, took 0.70 GiB
(EngineCore pid=6) INFO 11-29 [core.py:413] init engine (profile, create kv cache, warmup model) took 97.90 s (compilation: 26.50 s)
"""


def test_a_whole_start_is_read() -> None:
    assert parse(START) == EngineLog(
        vllm="0.33.0",
        weights_gib=(25.17, 25.17),
        kv_available_gib=(100.33,),
        kv_tokens=3_003_733,
        max_concurrency=45.83,
        max_concurrency_at=65_536,
        graphs_gib=(0.70,),
        attention_backend=("FLASH_ATTN",),
        gdn_kernels=("GDN spec decode kernel: triton",),
        all_reduce=("'CUSTOM'",),
        transports=("P2P/CUMEM",),
        compile_s=(26.5,),
        init_s=97.9,
        padding_layers=4,
        fallbacks=("Falling back to the Triton GDN spec decode path: needs BF16 or FP32 state",),
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", EngineLog()),
        ("INFO CPU KV cache size: 4,096 tokens, Maximum concurrency for 1,024 tokens per request: 4.00x",
         EngineLog(kv_tokens=4096, max_concurrency=4.0, max_concurrency_at=1024)),
        ("x Available KV cache memory: -1.25 GiB", EngineLog(kv_available_gib=(-1.25,))),
        ("a [0] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct", EngineLog(transports=("SHM/direct/direct",))),
        ("flashinfer allreduce backend=mnnvl", EngineLog(multicast=True)),
        ("NCCL INFO NVLS multicast support is not available on dev 0", EngineLog()),
        ("ValueError: To serve at least one request, 6.64 GiB KV cache is needed",
         EngineLog(errors=("ValueError: To serve at least one request, 6.64 GiB KV cache is needed",))),
    ],
)  # fmt: skip
def test_a_line_of_the_log_fills_its_fields_alone(line: str, expected: EngineLog) -> None:
    assert parse(line) == expected


UNPINNED = """\
(Worker_PP1_TP0 pid=9) INFO 11-29 [gpu_worker.py:787] CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9200 is equivalent to ...
(Worker_PP1_TP0 pid=9) INFO 11-29 [gpu_worker.py:1003] CUDA graph pool memory: 0.70 GiB (actual), 1.00 GiB (estimated), difference: 0.30 GiB (42.9%).
(Worker_PP1_TP0 pid=9) INFO 11-29 [gpu_worker.py:1066] Free memory on device (23.30/23.56 GiB) on startup. Desired GPU memory utilization is (0.92, 21.68 GiB). Actual usage is 15.20 GiB for consumed memory (weights + non-torch), 1.90 GiB for peak activation, and 0.70 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1` (4.00 GiB) to fit into requested memory, or `--kv-cache-memory=2` (5.50 GiB) to fully utilize gpu memory. Current kv cache memory in use is 4.58 GiB.
(Worker_PP0_TP0 pid=8) INFO 11-29 [gpu_worker.py:1003] CUDA graph pool memory: 1.30 GiB (actual), 1.00 GiB (estimated), difference: 0.30 GiB (23.1%).
(Worker_PP0_TP0 pid=8) INFO 11-29 [gpu_worker.py:1066] Free memory on device (23.00/23.56 GiB) on startup. Desired GPU memory utilization is (0.92, 21.68 GiB). Actual usage is 14.20 GiB for consumed memory (weights + non-torch), 1.80 GiB for peak activation, and 1.30 GiB for CUDAGraph memory. Replace ...
(Worker_PP0_TP0 pid=8) INFO 11-29 [backends.py:402] Cache the graph of compile range (1, 2048) for later use
"""


def test_what_each_rank_takes_beside_its_pool_comes_in_rank_order() -> None:
    read = parse(UNPINNED)
    assert read.use == (
        RankUse((0, 0, 0), 23.0, 23.56, 14.2, 1.8, 1.3, 1.0, True),
        RankUse((0, 1, 0), 23.3, 23.56, 15.2, 1.9, 0.7, 1.0, True),
    )
    # the estimate is in the peak already; graphs that came out larger count with the rest
    assert [use.beside_gib for use in read.use] == [16.3, 17.1]
    assert read.cold


def test_graphs_that_profiling_left_out_are_added() -> None:
    lines = "\n".join(line for line in UNPINNED.splitlines() if "profiling is enabled" not in line)
    assert [use.beside_gib for use in parse(lines).use] == [17.3, 17.8]


def test_a_single_process_is_rank_zero_and_a_warm_start_is_not_cold() -> None:
    line = UNPINNED.splitlines()[2].replace("Worker_PP1_TP0", "EngineCore")
    read = parse(line + "\nDirectly load the compiled graph(s) for compile range (1, 2048) from the cache")
    assert [use.rank for use in read.use] == [(0, 0, 0)]
    assert not read.cold


H200 = """\
(EngineCore pid=1695) INFO 11-29 19:13:29 [backends.py:401] [backbone] Cache the graph of compile range (1, 8192) for later use
(EngineCore pid=1695) INFO 11-29 19:14:04 [decorators.py:752] [backbone] saved AOT compiled function to /root/.cache/vllm/torch_compile_cache/torch_aot_compile/5636d98b/rank_0_0/model
(EngineCore pid=1695) INFO 11-29 19:15:07 [gpu_worker.py:772] Available KV cache memory: 72.36 GiB
(EngineCore pid=1695) INFO 11-29 19:15:07 [gpu_worker.py:787] CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9200 is equivalent to --gpu-memory-utilization=0.9088 without CUDA graph memory profiling. To maintain the same effective KV cache size as before, increase --gpu-memory-utilization to 0.9312. To disable, set VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0.
(EngineCore pid=1695) INFO 11-29 19:15:35 [gpu_worker.py:1003] CUDA graph pool memory: 0.7 GiB (actual), 1.56 GiB (estimated), difference: 0.86 GiB (122.6%).
(EngineCore pid=1695) INFO 11-29 19:15:35 [gpu_worker.py:1066] Free memory on device (139.1/139.8 GiB) on startup. Desired GPU memory utilization is (0.92, 128.62 GiB). Actual usage is 51.29 GiB for consumed memory (weights + non-torch), 4.96 GiB for peak activation, and 0.7 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=76786610279` (71.51 GiB) to fit into requested memory, or `--kv-cache-memory=88041671168` (82.0 GiB) to fully utilize gpu memory. Current kv cache memory in use is 72.36 GiB.
"""


def test_a_recorded_start_adds_up_what_was_asked_for_is_the_pool_and_what_is_beside_it() -> None:
    """vLLM 0.33.0, Qwen3.8-27B's shape in 16 bit on an H200: 128.62 GiB asked for, 72.36 of them left for the pool."""
    read = parse(H200)
    (use,) = read.use
    assert read.cold
    assert use.beside_gib == pytest.approx(128.62 - read.kv_available_gib[0], abs=0.02)

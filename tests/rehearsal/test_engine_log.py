# ruff: noqa: E501  (recorded lines)
"""vLLM's and NCCL's start-up lines, as versions 0.30 to 0.33 print them."""

import pytest

from qwenlab.rehearsal.engine_log import EngineLog, parse

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
def test_single_lines(line: str, expected: EngineLog) -> None:
    assert parse(line) == expected

"""What lines of the journal mean: from vLLM's and the kernel's words to what is wrong and what to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """Attributes:
    code: stable name; text: what is wrong and what to do; line: the line that says so.
    """

    code: str
    text: str
    line: str


@dataclass(frozen=True)
class _Symptom:
    code: str
    pattern: re.Pattern[str]
    text: str


# a deploy alone builds nothing where a release has its mark
_REBUILD = "remove its release.json (below qwen_release_directory, in current/) and deploy again, which builds it anew"
_SYMPTOMS = (
    # the first that fits a line wins. Xid numbers: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors)
    _Symptom(
        "xid-79", re.compile(r"Xid.*: 79,"), "a card fell off the bus: check power cables, riser and heat; reboot"
    ),
    _Symptom(
        "xid-48",
        re.compile(r"Xid.*: (?:48|94|95),"),
        "a card's memory has an error that ECC cannot mend: reboot; replace",
    ),
    _Symptom(
        "xid-63",
        re.compile(r"Xid.*: (?:63|64),"),
        "a card retires or remaps memory rows: reboot once to let it take effect",
    ),
    _Symptom(
        "xid-119",
        re.compile(r"Xid.*: (?:119|120),"),
        "a card's firmware (GSP) does not answer: reboot; update the driver",
    ),
    _Symptom("xid-74", re.compile(r"Xid.*: 74,"), "NVLink error: reseat the bridge"),
    _Symptom(
        "xid-31",
        re.compile(r"Xid.*: (?:13|31|43|45),"),
        "a program on a card made a wrong access and was stopped: the engine restarts; report it when it comes again",
    ),
    _Symptom("xid", re.compile(r"NVRM: Xid.*: \d+,"), "the driver reported an error of a card: look its Xid number up"),
    # before "disk": the same words, of /dev/shm (NVIDIA/nccl 290 and 525, llm-d/llm-d 352)
    _Symptom(
        "shared-memory",
        re.compile(r"creating shared memory segment|attaching to shared memory segment|posix_fallocate failed"),
        "/dev/shm is full or too small: remove what ended programs left there (ls /dev/shm), or enlarge it",
    ),
    # torch's and CUDA's words for a driver that cannot be used: modelscope/FunASR 2973; 802 pytorch/pytorch 35710; 803
    # vllm-project/vllm 15335; 804 gpustack/gpustack 1254; unknown error pytorch/pytorch 88639
    _Symptom(
        "driver-too-old",
        re.compile(r"NVIDIA driver on your system is too old|CUDA driver version is insufficient"),
        "the driver is older than the engine's CUDA: run plays/upgrade_driver.py",
    ),
    _Symptom(
        "fabric-manager",
        re.compile(r"Error 802: system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady"),
        "nobody routes the NVSwitches: systemctl status nvidia-fabricmanager, whose version must be the driver's",
    ),
    _Symptom(
        "driver-mismatch",
        re.compile(r"Error 803: system has unsupported display driver|Driver/library version mismatch"),
        "the driver was updated under its loaded module: reboot",
    ),
    _Symptom(
        "cuda-compat",
        re.compile(r"Error 804: forward compatibility was attempted"),
        "a CUDA compatibility library stands before the driver's own: remove cuda-compat, or its directory from "
        "LD_LIBRARY_PATH",
    ),
    _Symptom(
        "cuda-start",
        re.compile(r"CUDA unknown error - this may be due to an incorrectly set up environment|cudaErrorUnknown"),
        "CUDA does not start although the driver answers, as after a suspend: reload nvidia_uvm (modprobe -r, then "
        "modprobe) while nothing uses the cards, or reboot",
    ),
    _Symptom(
        "card-taken",
        re.compile(r"CUDA-capable devices?(?:\(s\))? (?:is/are|are) busy or unavailable"),
        "a card takes no further program: nvidia-smi tells its compute mode and who holds it; nvidia-smi -c DEFAULT",
    ),
    _Symptom(
        "no-kernels",
        re.compile(r"no kernel image is available for execution"),
        "the engine has no kernels for one of the cards: its release is not the one that was planned; deploy again",
    ),
    # compilers: flashinfer-ai/flashinfer 3493, vllm-project/vllm 21960, 27890, 44305, 49497, 50705
    _Symptom(
        "compiler-headers",
        re.compile(r"CUDA compiler and CUDA toolkit headers are incompatible"),
        f"nvcc and the CUDA headers in the release are of different versions, so packages were changed: {_REBUILD}",
    ),
    _Symptom(
        "compiler-old",
        re.compile(r"Unsupported gpu architecture 'compute_|SM \d+\.x requires CUDA"),
        "an nvcc too old for the card is found first: take CUDA_HOME and PATH of the host out of the engine's "
        "variables, so that the release's own is used",
    ),
    _Symptom(
        "compiler-missing",
        re.compile(r"nvcc: not found|Could not find nvcc|Failed to find C compiler|Python\.h: No such file"),
        "kernels are compiled at the start, and a compiler or Python's headers are missing: deploy again",
    ),
    _Symptom(
        "host-memory",
        re.compile(r"oom-kill|Out of memory: Killed process|killed by the OOM killer|result 'oom-kill'"),
        "the host's memory ran out and the kernel ended the engine: free memory, or raise qwen_memory_percent",
    ),
    _Symptom(
        "card-memory",
        re.compile(r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory"),
        "a card's memory ran out: something else uses the card, or the plan is too tight; run plays/calibrate.py",
    ),
    _Symptom(
        "card-in-use",
        re.compile(r"Free memory on device .*is less than desired GPU memory"),
        "other programs hold memory of a card that the plan counts on: nvidia-smi names them; end them, or deploy "
        "again while they run, and the plan leaves them that",
    ),
    _Symptom(
        "kv-too-small",
        re.compile(
            r"To serve at least one request|No available memory for the cache blocks|larger than the available KV"
        ),
        "the KV cache does not hold one request of the planned length: lower qwen_context",
    ),
    _Symptom(
        "stall",
        re.compile(r"liveness: no answer, and no token|Watchdog timeout"),
        "the engine generated nothing although it ran: systemd restarts it; report it when it comes again",
    ),
    _Symptom("nonsense", re.compile(r"liveness: degenerate output"), "the engine computed nonsense and was restarted"),
    _Symptom("refused", re.compile(r"refused: (?P<text>.*)"), ""),
    # vllm-project/vllm 406, 5613, 9046
    _Symptom(
        "all-reduce",
        re.compile(r"peer access is not supported between these two devices|custom_all_reduce\.cuh:\d+"),
        "vLLM's own all-reduce cannot work between these cards: run plays/verify.py with qwen_verify_peers = True, "
        "then deploy",
    ),
    # vllm-project/vllm 30317, 46611
    _Symptom(
        "rank-waits",
        re.compile(r"No available shared memory broadcast block found"),
        "one card waited for another for a minute: normal while kernels are compiled; if it goes on, the cards hang "
        "on each other (plays/verify.py with qwen_verify_peers = True)",
    ),
    # vllm-project/vllm 27430, 40756, 52225
    _Symptom(
        "kernel-fault",
        re.compile(
            r"CUDA error: (?:an illegal (?:memory access|instruction)|misaligned address|unspecified launch failure)"
            r"|cudaError(?:IllegalAddress|IllegalInstruction|LaunchFailure|MisalignedAddress)\b"
        ),
        "a program on a card made a wrong access and the engine died of it: look for an Xid in the kernel log; when "
        "it comes again, deploy without drafts (qwen_speculation = 'off'), and report it",
    ),
    # QwenLM/Qwen3-VL 264, 559
    _Symptom(
        "checkpoint",
        re.compile(r"SafetensorError|Error while deserializing header"),
        "a checkpoint's file is cut or damaged: deploy again, which verifies and mends it",
    ),
    _Symptom(
        "port",
        re.compile(r"[Aa]ddress already in use|EADDRINUSE"),
        "a port is taken by another program: ss -ltnp names it",
    ),
    _Symptom(
        "nccl",
        re.compile(
            r"NCCL (?:error|WARN.*(?:timeout|failed))|ncclUnhandledCudaError|ncclSystemError"
            r"|Watchdog caught collective operation timeout"
        ),
        "the cards could not talk to each other: run plays/verify.py with qwen_verify_peers = True",
    ),
    _Symptom("import", re.compile(r"(?:ImportError|ModuleNotFoundError): "), f"the release is broken: {_REBUILD}"),
    _Symptom("disk", re.compile(r"No space left on device"), "a disk is full: free room"),
    _Symptom(
        "start-limit",
        re.compile(r"Start request repeated too quickly"),
        "too many failed starts: mend the cause, then systemctl reset-failed 'qwen-engine@*'; systemctl start qwen",
    ),
)


def diagnose(lines: Iterable[str]) -> list[Finding]:
    """What the lines say, each kind once with its latest line, in the order of first appearance."""
    found: dict[str, Finding] = {}
    for line in lines:
        for symptom in _SYMPTOMS:
            match = symptom.pattern.search(line)
            if match:
                text = symptom.text or match.group("text")
                found[symptom.code] = Finding(symptom.code, text, line.strip())
                break
    return list(found.values())

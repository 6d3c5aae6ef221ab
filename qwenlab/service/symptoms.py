"""Words of vLLM, CUDA, NCCL, systemd and the kernel in the journal: what each means, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from qwenlab.facts.kernel_log import UVM_FAILED


@dataclass(frozen=True)
class Symptom:
    """Attributes:
    code: stable name; pattern: what the line holds; text: what is wrong and what to do, or the pattern's own `text`.
    """

    code: str
    pattern: re.Pattern[str]
    text: str


# a deploy alone builds nothing where a release has its mark
_REBUILD = "remove its release.json (below qwen_release_directory, in current/) and deploy again, which builds it anew"
SYMPTOMS = (
    # the first that fits a line wins
    Symptom(
        "xid-79",
        re.compile(r"Xid.*: 79,|NVRM:.* fallen off the bus"),
        "a card fell off the bus: check power cables, riser and heat; reboot",
    ),
    Symptom(
        "xid-48",
        re.compile(r"Xid.*: (?:48|94|95|171|172),|uncorrectable ECC error encountered|cudaErrorECCUncorrectable"),
        "a card's memory has an error that ECC cannot mend: reboot; replace",
    ),
    Symptom(
        "xid-63",
        re.compile(r"Xid.*: (?:63|64),"),
        "a card retires or remaps memory rows: reboot once to let it take effect",
    ),
    Symptom(
        "xid-119",
        re.compile(r"Xid.*: (?:119|120),|NVRM:.*The GPU likely needs to be reset"),
        "a card's firmware (GSP) does not answer: reboot; update the driver",
    ),
    Symptom(
        "xid-74",
        re.compile(r"Xid.*: 74,|uncorrectable NVLink error|cudaErrorNvlinkUncorrectable"),
        "NVLink error: reseat the bridge",
    ),
    Symptom(
        "xid-31",
        re.compile(r"Xid.*: (?:13|31|43|45),"),
        "a program on a card made a wrong access and was stopped: the engine restarts; report it when it comes again",
    ),
    Symptom("xid", re.compile(r"NVRM: Xid[^)]*\): (?P<xid>\d+)\b"), ""),
    Symptom(
        "uvm",
        re.compile(UVM_FAILED),
        "CUDA's memory manager in the kernel gave up: nothing starts on any card until a reboot, though nvidia-smi "
        "looks well",
    ),
    Symptom(
        "card-not-started",
        re.compile(r"RmInitAdapter failed|Unable to change power state from \S+ to D0, device inaccessible"),
        "the driver could not start a card: python -m qwenlab probe on the host tells why; reboot",
    ),
    # before "disk": the same words, of /dev/shm (NVIDIA/nccl 290 and 525, llm-d/llm-d 352)
    Symptom(
        "shared-memory",
        re.compile(r"creating shared memory segment|attaching to shared memory segment|posix_fallocate failed"),
        "/dev/shm is full or too small: remove what ended programs left there (ls /dev/shm), or enlarge it",
    ),
    # torch's and CUDA's words for a driver that cannot be used: modelscope/FunASR 2973; 802 pytorch/pytorch 35710; 803
    # vllm-project/vllm 15335; 804 gpustack/gpustack 1254; unknown error pytorch/pytorch 88639
    Symptom(
        "driver-too-old",
        re.compile(r"NVIDIA driver on your system is too old|CUDA driver version is insufficient"),
        "the driver is older than the engine's CUDA: run plays/upgrade_driver.py",
    ),
    Symptom(
        "fabric-manager",
        re.compile(r"Error 802: system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady"),
        "nobody routes the NVSwitches: systemctl status nvidia-fabricmanager, whose version must be the driver's",
    ),
    Symptom(
        "driver-mismatch",
        re.compile(r"Error 803: system has unsupported display driver|Driver/library version mismatch"),
        "the driver was updated under its loaded module: reboot",
    ),
    # vllm-project/vllm 3808, bentoml/OpenLLM 746
    Symptom(
        "driver-missing",
        re.compile(
            r"Found no NVIDIA driver on your system|libcuda\.so(?:\.1)?: cannot open shared|libcuda\.so cannot found"
            r"|NVMLError_(?:LibraryNotFound|DriverNotLoaded)|NVML Shared Library Not Found|cannot find -lcuda\b"
        ),
        "the driver's module or libraries are not there, as after a new kernel or a removed package: deploy again",
    ),
    # vllm-project/vllm 22505, 23655, 28572
    Symptom(
        "card-missing",
        re.compile(
            r"No CUDA GPUs are available|no CUDA-capable device is detected|invalid device ordinal|cudaErrorNoDevice"
            r"|NVMLError_(?:GpuIsLost|NotFound)|CUDA error: GPU is lost"
        ),
        "CUDA does not see a card of the plan: nvidia-smi -L tells which; reboot where one is lost, deploy again where "
        "one was taken out",
    ),
    Symptom(
        "cuda-compat",
        re.compile(r"Error 804: forward compatibility was attempted"),
        "a CUDA compatibility library stands before the driver's own: remove cuda-compat, or its directory from "
        "LD_LIBRARY_PATH",
    ),
    Symptom(
        "cuda-start",
        re.compile(
            r"CUDA unknown error - this may be due to an incorrectly set up environment|cudaErrorUnknown"
            r"|CUDA error: (?:unknown error|initialization error)|Error (?:3: initialization|999: unknown) error"
        ),
        "CUDA does not start although the driver answers, as after a suspend: reload nvidia_uvm (modprobe -r, then "
        "modprobe) while nothing uses the cards, or reboot",
    ),
    Symptom(
        "card-taken",
        re.compile(r"CUDA-capable devices?(?:\(s\))? (?:is/are|are) busy or unavailable"),
        "a card takes no further program: nvidia-smi tells its compute mode and who holds it; nvidia-smi -c DEFAULT",
    ),
    Symptom(
        "no-kernels",
        re.compile(r"no kernel image is available for execution"),
        "the engine has no kernels for one of the cards: its release is not the one that was planned; deploy again",
    ),
    # compilers: flashinfer-ai/flashinfer 3493, vllm-project/vllm 11643, 13563, 21960, 27890, 34470, 44305, 49497, 50705
    Symptom(
        "compiler-headers",
        re.compile(r"CUDA compiler and CUDA toolkit headers are incompatible"),
        f"nvcc and the CUDA headers in the release are of different versions, so packages were changed: {_REBUILD}",
    ),
    Symptom(
        "compiler-old",
        re.compile(r"Unsupported gpu architecture 'compute_|SM \d+\.x requires CUDA|Value 'sm_\w+' is not defined"),
        "an nvcc too old for the card is found first: take CUDA_HOME and PATH of the host out of the engine's "
        "variables, so that the release's own is used",
    ),
    Symptom(
        "compiler-missing",
        re.compile(
            r"nvcc: not found|Could not find nvcc|Failed to find C compiler|(?:Python|curand|cuda\w*)\.h: No such file"
            r"|CUDA_HOME environment variable is not set|No such file or directory: '(?:\S*/)?(?:ninja|nvcc|gcc)'"
        ),
        "kernels are compiled at the start, and a compiler or Python's headers are missing: deploy again",
    ),
    # vllm-project/vllm 12498, 36802, 57712
    Symptom(
        "kernel-too-large",
        re.compile(r"OutOfResources: out of resource: shared memory"),
        "a kernel wants more shared memory than the card's processors have: try another qwen_kv_cache_dtype, deploy "
        "without drafts (qwen_speculation = 'off'), and report it",
    ),
    Symptom(
        "host-memory",
        re.compile(
            r"oom-kill|Out of memory: Killed process|killed by the OOM killer|systemd-oomd killed|std::bad_alloc"
            r"|DefaultCPUAllocator: (?:can't|not enough)|\[Errno 12\] Cannot allocate memory"
        ),
        "the host's memory ran out and the kernel ended the engine: free memory, or raise qwen_memory_percent",
    ),
    Symptom(
        "card-memory",
        re.compile(
            r"torch\.(?:cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA (?:driver )?error: out of memory"
            r"|CUBLAS_STATUS_ALLOC_FAILED|Cuda failure (?:\d+ )?'out of memory'"
        ),
        "a card's memory ran out: something else uses the card, or the plan is too tight; run plays/calibrate.py",
    ),
    Symptom(
        "card-in-use",
        re.compile(r"Free memory on device .*is less than desired GPU memory"),
        "other programs hold memory of a card that the plan counts on: nvidia-smi names them; end them, or deploy "
        "again while they run, and the plan leaves them that",
    ),
    # vllm-project/vllm 56830
    Symptom(
        "card-changed",
        re.compile(r"AssertionError: Error in memory profiling"),
        "another program gave memory of the card back while the engine measured it: keep others off the card, or let "
        "it start again",
    ),
    Symptom(
        "kv-too-small",
        re.compile(
            r"To serve at least one request|No available memory for the cache blocks|larger than the available KV"
        ),
        "the KV cache does not hold one request of the planned length: lower qwen_context",
    ),
    Symptom(
        "stall",
        re.compile(r"liveness: no answer, and no token|Watchdog timeout"),
        "the engine generated nothing although it ran: systemd restarts it; report it when it comes again",
    ),
    # eugr/spark-vllm-docker 321
    Symptom(
        "rank-dead",
        re.compile(r"RPC call to \w+ timed out|Timed out waiting for engines? "),
        "a part of the engine did not answer in time: the lines of the other ranks tell why; where they tell nothing, "
        "the cards hang on each other (plays/verify.py with qwen_verify_peers = True)",
    ),
    Symptom("nonsense", re.compile(r"liveness: degenerate output"), "the engine computed nonsense and was restarted"),
    Symptom("refused", re.compile(r"refused: (?P<text>.*)"), ""),
    # vllm-project/vllm 406, 5613, 9046
    Symptom(
        "all-reduce",
        re.compile(r"peer access is not supported between these two devices|custom_all_reduce\.cuh:\d+"),
        "vLLM's own all-reduce cannot work between these cards: run plays/verify.py with qwen_verify_peers = True, "
        "then deploy",
    ),
    # vllm-project/vllm 30317, 46611
    Symptom(
        "rank-waits",
        re.compile(r"No available shared memory broadcast block found"),
        "one card waited for another for a minute: normal while kernels are compiled; if it goes on, the cards hang "
        "on each other (plays/verify.py with qwen_verify_peers = True)",
    ),
    # vllm-project/vllm 27430, 40756, 52225
    Symptom(
        "kernel-fault",
        re.compile(
            r"CUDA error: (?:an illegal (?:memory access|instruction)|misaligned address|unspecified launch failure"
            r"|device-side assert triggered|hardware stack error)"
            r"|cudaError(?:IllegalAddress|IllegalInstruction|LaunchFailure|MisalignedAddress)\b"
        ),
        "a program on a card made a wrong access and the engine died of it: look for an Xid in the kernel log; when "
        "it comes again, deploy without drafts (qwen_speculation = 'off'), and report it",
    ),
    # QwenLM/Qwen3-VL 264, 559
    Symptom(
        "checkpoint",
        re.compile(r"SafetensorError|Error while deserializing header"),
        "a checkpoint's file is cut or damaged: deploy again, which verifies and mends it",
    ),
    # vllm-project/llm-compressor 2752, huggingface/trl 5269, hiyouga/LlamaFactory 10275
    Symptom(
        "checkpoint-foreign",
        re.compile(
            r"layers\.\d+\.\S+ not found in params_dict, skip loading|There is no module or parameter named"
            r"|KeyError: '(?:\w+\.)*layers\.\d+\."
        ),
        "the checkpoint holds tensors that this vLLM does not take, or under other names: what it answers would be "
        "nonsense; take a checkpoint that qwenlab knows (docs/checkpoints.md), at its pinned commit",
    ),
    # vllm-project/vllm 10759, 17529: what went wrong stands before it
    Symptom(
        "model-unknown",
        re.compile(r"Model architectures \[.*\] (?:failed to be inspected|are not supported)"),
        "this vLLM does not know the checkpoint's architecture, or could not load its own code for it: the lines "
        "before tell which",
    ),
    Symptom(
        "port",
        re.compile(r"[Aa]ddress already in use|EADDRINUSE"),
        "a port is taken by another program: ss -ltnp names it",
    ),
    # gpustack/gpustack 2125, vllm-project/vllm 19670, aws-samples/aws-do-eks 50
    Symptom(
        "ranks-apart",
        re.compile(
            r"DistNetworkError: The client socket has timed out|DistStoreError: Timed out|connectFullMesh failed"
            r"|Bootstrap : no socket interface found|RuntimeError: Unable to find address for: "
        ),
        "the engine's processes do not reach each other over the host's own network: a firewall between the host and "
        "itself, or a host name in /etc/hosts with an address that is not its own (getent hosts $(hostname))",
    ),
    Symptom(
        "nccl",
        re.compile(
            r"NCCL (?:error|WARN.*(?:timeout|failed))|ncclUnhandledCudaError|ncclSystemError"
            r"|Watchdog caught collective operation timeout"
        ),
        "the cards could not talk to each other: run plays/verify.py with qwen_verify_peers = True",
    ),
    # pytorch/pytorch 111469, 119932, infiniflow/ragflow 4466
    Symptom(
        "foreign-library",
        re.compile(r"undefined symbol: (?:nccl|__nvJitLink|cublas|cudnn|cusparse)"),
        "a CUDA library of the host is found before the release's own: take LD_LIBRARY_PATH and LD_PRELOAD out of the "
        "engine's variables (systemctl cat 'qwen-engine@*' shows drop-ins), and look into /etc/ld.so.preload",
    ),
    # vllm-project/vllm 34807, 52885, pytorch/pytorch 22338
    Symptom(
        "processor",
        re.compile(
            r"status=4/ILL|[Ii]llegal (?:hardware )?instruction +\(core dumped\)|died with <Signals\.SIGILL"
            r"|NumPy was built with baseline optimizations|compiled with avx\w* but CPU does not support it"
        ),
        "the processor lacks instructions that the engine's packages use: in a virtual machine, give it the type of "
        "the processor below (Proxmox: CPU type host)",
    ),
    Symptom(
        "crash",
        re.compile(r"status=11/SEGV|Segfault encountered|Fatal Python error: Segmentation fault"),
        "a part of the engine crashed: look for an Xid in the kernel log, and report it with the lines before it when "
        "it comes again",
    ),
    # vllm-project/vllm 6295, 13354; the unit's own limits are far above what engines need
    Symptom(
        "limits",
        re.compile(
            r"can't start new thread|pthread_create failed|Thread creation failed: Resource|Too many open files"
        ),
        "a limit of threads or open files is reached: systemctl show qwen-engine@NAME -p TasksMax,LimitNOFILE; in a "
        "container, its limit of processes",
    ),
    Symptom(
        "permission",
        re.compile(r"PermissionError: \[Errno 1?3\]"),
        "the engine's user may not use the file that the line names: deploy again, which puts right what qwenlab owns",
    ),
    Symptom("import", re.compile(r"(?:ImportError|ModuleNotFoundError): "), f"the release is broken: {_REBUILD}"),
    Symptom("disk", re.compile(r"No space left on device|Disk quota exceeded"), "a disk is full: free room"),
    Symptom(
        "disk-broken",
        re.compile(r"\[Errno 5\] Input/output error|\[Errno 30\] Read-only file system"),
        "a disk reports errors or was made read-only for them: journalctl -k tells which",
    ),
    # systemd.exec(5), "Process exit codes"
    Symptom(
        "unit-place",
        re.compile(
            r"Failed at step (?:EXEC|CHDIR|NAMESPACE|USER)\b|status=(?:200/CHDIR|203/EXEC|217/USER|226/NAMESPACE)"
        ),
        "systemd could not start the engine: its release, a directory of it or its user is gone: deploy again",
    ),
    Symptom(
        "start-slow",
        re.compile(r"start operation timed out"),
        "the start took longer than it may: where it was still loading or compiling, raise qwen_start_timeout_s",
    ),
    Symptom(
        "start-limit",
        re.compile(r"Start request repeated too quickly"),
        "too many failed starts: mend the cause, then systemctl reset-failed 'qwen-engine@*'; systemctl start qwen",
    ),
)

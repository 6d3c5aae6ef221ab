"""Status: what is said about a host, when it counts as serving, and what journal lines mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qwenlab.remote.status import load
from qwenlab.service.diagnosis import diagnose
from qwenlab.service.report import Report

ENGINE: dict[str, Any] = {
    "name": "engine1",
    "state": "active",
    "says": "answering on http://127.0.0.1:8000",
    "restarts": 0,
    "up_s": 93_700,
    "tokens_s": 61.5,
    "running": 1.0,
    "waiting": 0.0,
    "kv_use": 0.25,
    "verified": {"ok": True, "at": "2026-01-01T00:00:00Z"},
    "journal": ["CUDA out of memory"],
}


HOST: dict[str, Any] = {"release": "cuda-1", "driver": "595.1", "enabled": True, "failed": {}, "kernel": []}


def report(drift: tuple[str, ...] = (), wanted: tuple[str, ...] = ("engine1",), **changed: Any) -> Report:
    """The report on a host with one engine."""
    return Report({**HOST, "engines": [{**ENGINE, **changed}]}, drift, wanted)


def told(**host: Any) -> str:
    """What a person reads about a serving host of which something is otherwise."""
    return "\n".join(Report({**HOST, "engines": [ENGINE], **host}, [], ["engine1"]).lines())


def test_a_serving_host_is_told_in_a_few_lines() -> None:
    text = "\n".join(report().lines())
    assert "serving: release cuda-1, driver 595.1" in text
    assert "active for 1 d 2 h; answering on" in text
    assert "61.5 tok/s now, 1 running, 0 waiting, KV 25%, 0 restarts" in text
    assert "card-memory" not in text  # words of a start long ago


@pytest.mark.parametrize(
    ("changed", "ok"),
    [
        ({}, True),
        ({"verified": {}}, True),
        ({"drift": ("/etc/qwen/plan.json",)}, True),
        ({"state": "failed"}, False),
        ({"state": "activating"}, False),
        ({"verified": {"ok": False}}, False),
        ({"wanted": ("engine1", "engine2")}, False),
    ],
)
def test_what_counts_as_serving(changed: dict[str, Any], ok: bool) -> None:
    assert report(**changed).ok is ok


def test_a_host_that_was_never_deployed_does_not_serve() -> None:
    made = Report({}, [], ["engine1"])
    assert not made.ok
    assert "engine engine1 is asked for and not there: deploy" in "\n".join(made.lines())


@pytest.mark.parametrize(
    ("state", "says", "line"),
    [
        ("active", "answering on x", "engine1: active for 1 d 2 h; answering on x"),
        ("activating", "loading the model", "engine1: activating for 1 d 2 h; loading the model"),
        ("inactive", "answering on x", "engine1: inactive"),
        ("failed", "loading the model", "engine1: failed"),
        ("failed", "refused: port 8000 is taken", "engine1: failed; refused: port 8000 is taken"),
    ],
)
def test_words_that_hold_while_an_engine_runs_are_left_out_when_it_does_not(state: str, says: str, line: str) -> None:
    up = ENGINE["up_s"] if state.startswith("activ") else None
    assert f"  engine {line}" in report(state=state, says=says, up_s=up).lines()


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({"enabled": False}, "qwen.service is not enabled"),
        ({"release_problems": ["x.py is not as"]}, "drift: no engine would be started again: x.py is not as"),
        (
            {"failed": {"release": "cuda-2", "at": "2026-01-02T00:00:00Z", "reason": "it did not start"}},
            "release cuda-2 failed at 2026-01-02T00:00:00Z (it did not start) and was rolled back; try the same again "
            "with --data qwen_retry_failed=True",
        ),
        (
            {"kernel": ["2026-01-02T00:00:00 rack kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1"]},
            "xid-79: a card fell off the bus: check power cables, riser and heat; reboot (2026-01-02T00:00:00",
        ),
        (
            {
                "kernel": [
                    "2026-01-02T00:00:00 rack kernel: oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/qwen.slice"
                ]
            },
            "host-memory: the host's memory ran out",
        ),
        ({"release": None}, "serving: nothing was deployed here yet, or its release is gone, driver 595.1"),
    ],
)
def test_what_the_host_itself_has_to_tell(host: dict[str, Any], words: str) -> None:
    assert words in told(**host)
    assert words not in told()


def test_a_failing_engine_comes_with_its_diagnosis() -> None:
    text = "\n".join(report(state="failed", restarts=3).lines())
    assert "NOT SERVING AS ASKED" in text
    assert "card-memory: a card's memory ran out" in text


def test_what_an_engine_went_through_before_it_served_is_told_as_past() -> None:
    assert "    earlier, card-memory: a card's memory ran out" in "\n".join(report(restarts=2).lines())


def test_programs_get_one_line_without_the_journal() -> None:
    text = report(state="failed", drift=("/etc/qwen/plan.json",)).as_json()
    said = json.loads(text)
    assert "\n" not in text
    assert said["ok"] is False
    assert said["drift"] == ["/etc/qwen/plan.json"]
    assert "journal" not in said["engines"][0]
    assert said["engines"][0]["findings"][0]["code"] == "card-memory"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("NVRM: Xid (PCI:0000:01:00): 79, pid=12, GPU has fallen off the bus.", "xid-79"),
        ("NVRM: Xid (PCI:0000:01:00): 48, pid='<unknown>', DBE (double bit error)", "xid-48"),
        ("NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=python, MMU Fault", "xid-31"),
        ("NVRM: Xid (PCI:0000:01:00): 119, pid=1, Timeout waiting for RPC from GSP", "xid-119"),
        ("NVRM: Xid (PCI:0000:01:00): 62, pid=1", "xid-62"),
        ("qwen-engine@cpu.service: Failed with result 'oom-kill'.", "host-memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "card-memory"),
        ("ValueError: To serve at least one request with the models's max seq len (262144)", "kv-too-small"),
        ("liveness: no answer, and no token was generated since the last look", "stall"),
        ("qwen-engine@cpu.service: Watchdog timeout (limit 40s)!", "stall"),
        ("ModuleNotFoundError: No module named 'vllm'", "import"),
        ("OSError: [Errno 28] No space left on device", "disk"),
        ("qwen-engine@cpu.service: Start request repeated too quickly.", "start-limit"),
        # as users reported them; where, stands beside each symptom
        (
            "[0] misc/shmutils.cc:129 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-Ewjreo "
            "(size 33030528), error: No space left on device (28)",
            "shared-memory",
        ),
        ("[3] include/shm.h:28 NCCL WARN Call to posix_fallocate failed : No space left on device", "shared-memory"),
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12080).",
            "driver-too-old",
        ),
        (
            "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
            "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
            "fabric-manager",
        ),
        (
            "Error 803: system has unsupported display driver / cuda driver combination",
            "driver-mismatch",
        ),
        ("Error 804: forward compatibility was attempted on non supported HW", "cuda-compat"),
        (
            "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing "
            "env variable CUDA_VISIBLE_DEVICES after program start.",
            "cuda-start",
        ),
        ("torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "card-taken"),
        ("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable", "card-taken"),
        ("RuntimeError: CUDA error: no kernel image is available for execution on the device", "no-kernels"),
        (
            'cuda_toolkit.h:41:8: error: #error "CUDA compiler and CUDA toolkit headers are incompatible, please '
            'check your include paths"',
            "compiler-headers",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120a'", "compiler-old"),
        ("Failed to get device capability: SM 12.x requires CUDA >= 12.9", "compiler-old"),
        ("/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found", "compiler-missing"),
        ("/tmp/tmps1rkq3y3/main.c:5:10: fatal error: Python.h: No such file or directory", "compiler-missing"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "compiler-missing"),
        (
            "ValueError: Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 19.84 GiB). Decrease GPU memory utilization or reduce GPU memory used by others.",
            "card-in-use",
        ),
        ("Cuda failure 'peer access is not supported between these two devices'", "all-reduce"),
        ("Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'", "all-reduce"),
        (
            "INFO 08-13 11:27:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 "
            "seconds. This typically happens when some processes are hanging",
            "rank-waits",
        ),
        ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", "kernel-fault"),
        ("CUDA error: unspecified launch failure", "kernel-fault"),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
            "checkpoint",
        ),
        (
            "ERROR: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
            "port",
        ),
        (
            "[rank0]:[E ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(",
            "nccl",
        ),
    ],
)
def test_a_line_is_read(line: str, code: str) -> None:
    (finding,) = diagnose(["INFO: all is well", line])
    assert (finding.code, finding.line) == (code, line)


def test_the_gates_own_words_are_passed_on() -> None:
    (finding,) = diagnose(["refused: port 8000 is taken (held by process 12 (nginx, user 0)): stop that program"])
    assert finding.text.startswith("port 8000 is taken")


def test_each_kind_is_told_once_with_its_latest_line() -> None:
    found = diagnose(["CUDA out of memory 1", "No space left on device", "CUDA out of memory 2"])
    assert [(one.code, one.line[-1]) for one in found] == [("card-memory", "2"), ("disk", "e")]


def test_the_rate_is_what_was_made_between_two_looks() -> None:
    pages = [f'vllm:generation_tokens_total{{engine="0"}} {count}\n' for count in (100, 250)]
    page = pages[1] + 'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:num_requests_running{engine="0"} 2.0\n'
    assert load(pages[0], page, 2.0) == {"tokens_s": 75.0, "running": 2.0, "waiting": None, "kv_use": 0.5}
    assert load("", "", 2.0)["tokens_s"] is None

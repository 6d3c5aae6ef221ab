"""A live peer test: does data that one card reads from another arrive, and how fast?

The driver's "OK" is no proof: the same label moves 56 GB/s on one box and hangs on another. Each pair is tested in a
process of its own with a time limit: both cards get peer access to each other, a kernel on each reads a buffer that
lies on the other, and the result is compared value by value. A process that hangs is killed and counts as "hang";
nothing else on the host is touched. A marker file tells the next run when the whole machine froze meanwhile.

Runs on the host as it is: standard library and libcuda only.

usage: python3 peer_test.py [--limit SECONDS] [--marker FILE] UUID UUID [UUID ...]      all pairs; JSON on stdout
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

_WORDS = 1 << 24  # 64 MiB of 32-bit words
_ROUNDS = 8
_BLOCK = 256
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PULL = b"""
.version 6.4
.target @TARGET@
.address_size 64
.visible .entry pull(.param .u64 into, .param .u64 from, .param .u32 count)
{
    .reg .pred %p<2>;
    .reg .b32 %r<7>;
    .reg .b64 %d<7>;
    ld.param.u64 %d1, [into];
    ld.param.u64 %d2, [from];
    ld.param.u32 %r1, [count];
    cvta.to.global.u64 %d1, %d1;
    cvta.to.global.u64 %d2, %d2;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra END;
    mul.wide.u32 %d3, %r5, 4;
    add.u64 %d4, %d2, %d3;
    ld.global.u32 %r6, [%d4];
    add.u64 %d5, %d1, %d3;
    st.global.u32 [%d5], %r6;
END:
    ret;
}
\x00"""


class CudaError(RuntimeError):
    """A driver call failed; the message holds the call and the driver's name for the error."""


class Cuda:
    """The few driver calls that the test needs."""

    def __init__(self) -> None:
        """Raises `OSError` without libcuda, `CudaError` when the driver does not start."""
        self._library = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))

    def call(self, name: str, *arguments: Any) -> None:
        """Raises `CudaError` unless the call answers success."""
        status = getattr(self._library, name)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(status, ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'').decode() or status}")

    def device(self, uuid: str) -> int:
        """The ordinal of the card with that UUID. Raises `CudaError` when CUDA does not list it."""
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        wanted = uuid.lower().removeprefix("gpu-").replace("-", "")
        for ordinal in range(count.value):
            raw = (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGetUuid_v2", ctypes.byref(raw), ordinal)
            if bytes(raw).hex() == wanted:
                return ordinal
        raise CudaError(f"CUDA lists {count.value} cards and none is {uuid}")

    def target(self, device: int) -> bytes:
        """The PTX target for a card: compilers since CUDA 13 know nothing older than sm_75, Volta nothing newer."""
        numbers = []
        for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
            number = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
            numbers.append(number.value)
        return b"sm_75" if tuple(numbers) >= (7, 5) else b"sm_70"

    def can_access(self, device: int, peer: int) -> bool:
        """Whether the driver would let `device` read `peer`."""
        answer = ctypes.c_int()
        self.call("cuDeviceCanAccessPeer", ctypes.byref(answer), device, peer)
        return bool(answer.value)


class Side:
    """One card of the pair: its context, a buffer of its own values and one for the other card's."""

    def __init__(self, cuda: Cuda, device: int, seed: int) -> None:
        self.cuda = cuda
        self.context = ctypes.c_void_p()
        cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.use()
        self.values = _values(seed)
        self.own, self.pulled = ctypes.c_uint64(), ctypes.c_uint64()
        for buffer in (self.own, self.pulled):
            cuda.call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(4 * _WORDS))
            cuda.call("cuMemsetD32_v2", buffer, ctypes.c_uint(0), ctypes.c_size_t(_WORDS))
        cuda.call("cuMemcpyHtoD_v2", self.own, self.values, ctypes.c_size_t(4 * _WORDS))
        module, self._pull = ctypes.c_void_p(), ctypes.c_void_p()
        cuda.call("cuModuleLoadData", ctypes.byref(module), _PULL.replace(b"@TARGET@", cuda.target(device)))
        cuda.call("cuModuleGetFunction", ctypes.byref(self._pull), module, b"pull")

    def use(self) -> None:
        """Make the card current."""
        self.cuda.call("cuCtxSetCurrent", self.context)

    def pull(self, other: Side, rounds: int) -> float:
        """Read the other card's buffer `rounds` times by a kernel here; returns seconds."""
        self.use()
        count = ctypes.c_uint(_WORDS)
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in (self.pulled, other.own, count)))
        start = time.perf_counter()
        for _ in range(rounds):
            self.cuda.call(
                "cuLaunchKernel", self._pull, _WORDS // _BLOCK, 1, 1, _BLOCK, 1, 1, 0, None, pointers, None
            )  # fmt: skip
        self.cuda.call("cuCtxSynchronize")
        return time.perf_counter() - start

    def holds(self, other: Side) -> bool:
        """Whether what was pulled is what the other card holds, value by value."""
        self.use()
        back = ctypes.create_string_buffer(4 * _WORDS)
        self.cuda.call("cuMemcpyDtoH_v2", back, self.pulled, ctypes.c_size_t(4 * _WORDS))
        return back.raw == other.values.raw


def _values(seed: int) -> ctypes.Array[ctypes.c_char]:
    """Words that differ by place and by card, so that a shifted, stale or repeated block is seen."""
    block = b"".join(((seed + 2654435761 * place) & 0xFFFFFFFF).to_bytes(4, "little") for place in range(4093))
    repeats = 4 * _WORDS // len(block) + 1
    return ctypes.create_string_buffer((block * repeats)[: 4 * _WORDS], 4 * _WORDS)


def test_pair(a: str, b: str) -> dict[str, Any]:
    """Test one pair in this process: verdict "ok", "refused", "wrong", or "untested" when one card alone fails already.

    A card without room for its buffers, as beside an engine that serves, says nothing about the way to the other.

    Raises:
        CudaError: a call between the two cards failed.
    """
    try:
        cuda = Cuda()
        first, second = cuda.device(a), cuda.device(b)
        if not (cuda.can_access(first, second) and cuda.can_access(second, first)):
            return {"verdict": "refused", "detail": "the driver grants no peer access"}
        sides = Side(cuda, first, 1), Side(cuda, second, 2)
    except (OSError, CudaError) as error:
        return {"verdict": "untested", "detail": str(error)}
    for here, there in (sides, sides[::-1]):
        here.use()
        cuda.call("cuCtxEnablePeerAccess", there.context, ctypes.c_uint(0))
    rates = []
    for here, there in (sides, sides[::-1]):
        here.pull(there, 1)
        if not here.holds(there):
            return {"verdict": "wrong", "detail": "values that arrived are not the values that were sent"}
        rates.append(4 * _WORDS * _ROUNDS / here.pull(there, _ROUNDS) / 1e9)
        if not here.holds(there):
            return {"verdict": "wrong", "detail": "values that arrived are not the values that were sent"}
    return {"verdict": "ok", "detail": "", "gb_s": round(min(rates), 2)}


def run_pair(a: str, b: str, limit: float) -> dict[str, Any]:
    """Test one pair in a process of its own; adds the verdicts "hang" and "failed"."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--pair", a, b],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        child.kill()
        try:
            child.communicate(timeout=5)
            detail = f"no end within {limit:g} s; its process was killed"
        except subprocess.TimeoutExpired:
            detail = f"no end within {limit:g} s, and the process {child.pid} cannot be killed: reboot"
        return {"a": a, "b": b, "verdict": "hang", "detail": detail}
    try:
        return {"a": a, "b": b, **json.loads(output)}
    except ValueError:
        last = (errors.strip().splitlines() or [f"exit {child.returncode}"])[-1]
        return {"a": a, "b": b, "verdict": "failed", "detail": last[:300]}


def run_all(uuids: list[str], limit: float, marker: Path | None) -> list[dict[str, Any]]:
    """Test every pair, one after the other. A marker of another boot says that the machine froze in the last test."""
    boot = _BOOT_ID.read_text().strip()
    if marker is not None and marker.exists() and marker.read_text().strip() != boot:
        detail = f"the machine was restarted during the last peer test ({marker}); remove the file to test again"
        return [{"a": a, "b": b, "verdict": "froze", "detail": detail} for a, b in combinations(uuids, 2)]
    if marker is not None:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.write_text(boot + "\n")
    results = [run_pair(a, b, limit) for a, b in combinations(uuids, 2)]
    if marker is not None:
        marker.unlink(missing_ok=True)
    return results


def main(argv: list[str]) -> int:
    """The command line; exit code 0 whatever the verdicts are."""
    parser = argparse.ArgumentParser(description="Value-checked reads between each pair of NVIDIA cards.")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds a pair may take")
    parser.add_argument("--marker", type=Path, help="file that exists while the test runs")
    parser.add_argument("--pair", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("uuids", nargs="+", metavar="UUID")
    arguments = parser.parse_args(argv)
    if arguments.pair:
        try:
            print(json.dumps(test_pair(*arguments.uuids)))
        except CudaError as error:
            print(json.dumps({"verdict": "failed", "detail": str(error)}))
        return 0
    print(json.dumps(run_all(arguments.uuids, arguments.limit, arguments.marker), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

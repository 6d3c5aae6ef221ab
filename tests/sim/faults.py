"""What can be broken on a simulated machine, switched on while clients run.

A fault is some lines of `/etc/qwen-sim/faults`; `Fault.lost(1) | Fault.power_refused()` joins several. `gpu` is the
card's place in the inventory. Numbers are NVML return codes (`NVML_ERROR_*`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from tests.sim.inventory import Process

NOT_SUPPORTED = 3
NO_PERMISSION = 4
GPU_IS_LOST = 15
LIB_RM_VERSION_MISMATCH = 18
UNKNOWN = 999


@dataclass(frozen=True)
class Fault:
    """Lines of the faults file, and whether the NVML library is taken away."""

    lines: dict[str, str] = field(default_factory=dict)
    nvml_missing: bool = False

    def __or__(self, other: Fault) -> Fault:
        return Fault({**self.lines, **other.lines}, self.nvml_missing or other.nvml_missing)

    def text(self) -> str:
        """Content of the faults file."""
        return "".join(f"{key}={value}\n" for key, value in self.lines.items())

    @classmethod
    def version_mismatch(cls) -> Self:
        """Driver and library of different versions: nvmlInit fails with code 18, nvidia-smi exits 18.

        Without this fault the same happens by itself when the loaded module and the library differ.
        """
        return cls({"init": str(LIB_RM_VERSION_MISMATCH)})

    @classmethod
    def init_fails(cls, code: int) -> Self:
        """nvmlInit returns `code`."""
        return cls({"init": str(code)})

    @classmethod
    def missing_nvml(cls) -> Self:
        """libnvidia-ml.so.1 is not there; nvidia-smi exits 12."""
        return cls(nvml_missing=True)

    @classmethod
    def lost(cls, gpu: int, code: int = GPU_IS_LOST) -> Self:
        """The card fell off the bus: no handle for it, nvidia-smi exits with the code."""
        return cls({f"gpu.{gpu}.lost": str(code)})

    @classmethod
    def absent(cls, gpu: int) -> Self:
        """The driver does not show the card at all, while sysfs still does."""
        return cls({f"gpu.{gpu}.absent": "1"})

    @classmethod
    def error_fields(cls, gpu: int, *names: str) -> Self:
        """ERR! in these nvidia-smi fields (NVML_ERROR_UNKNOWN); without names, in all that the table shows but few."""
        broken = names or ("name", "fan", "temperature", "pstate", "power", "ecc", "utilization", "mig")
        return cls({f"gpu.{gpu}.error_fields": ",".join(broken)})

    @classmethod
    def missing_fields(cls, gpu: int, *names: str) -> Self:
        """N/A in these nvidia-smi fields (NVML_ERROR_NOT_SUPPORTED); `power` covers `power.limit` and its like."""
        return cls({f"gpu.{gpu}.missing_fields": ",".join(names)})

    @classmethod
    def field(cls, gpu: int, name: str, value: str) -> Self:
        """Another value in one nvidia-smi field."""
        return cls({f"gpu.{gpu}.set.{name}": value})

    @classmethod
    def function(cls, name: str, code: int = NOT_SUPPORTED, gpu: int | None = None) -> Self:
        """An NVML function (as nvidia-ml-py names it) returns `code`, for one card or for all."""
        suffix = "" if gpu is None else f".{gpu}"
        return cls({f"function.{name}{version}{suffix}": str(code) for version in ("", "_v2", "_v3")})

    @classmethod
    def power_refused(cls, code: int = NO_PERMISSION) -> Self:
        """Setting a power limit fails."""
        return cls({"power_set": str(code)})

    @classmethod
    def processes(cls, gpu: int, *held: Process) -> Self:
        """Other programs hold memory on the card."""
        return cls({f"gpu.{gpu}.processes": ";".join(process.line() for process in held)})

    @classmethod
    def nvlink_down(cls, gpu: int, *links: int) -> Self:
        """These NVLink links are inactive (seen from one end; name the other card too)."""
        return cls({f"gpu.{gpu}.nvlink.{link}.state": "0" for link in links})

    @classmethod
    def peer(cls, a: int, b: int, status: str) -> Self:
        """Peer access between two cards answers `status` (OK, CNS, GNS, TNS, NS, U) for read and write."""
        low, high = sorted((a, b))
        return cls({f"pair.{low}.{high}.p2p.{kind}": status for kind in ("read", "write")})

    @classmethod
    def smi(cls, output: str, exit_code: int = 0) -> Self:
        """nvidia-smi prints this one line, whatever it is asked, and exits so."""
        return cls({"smi.output": output, "smi.exit_code": str(exit_code)})

    @classmethod
    def smi_hangs(cls, seconds: int) -> Self:
        """nvidia-smi blocks before it answers, as in driver state D."""
        return cls({"smi.hang_s": str(seconds)})


NONE = Fault()

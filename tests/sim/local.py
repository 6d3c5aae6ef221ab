"""A simulated machine below a directory, for tests in this process or its children; needs no root and no lab host."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.sim import build, faults
from tests.sim.compiled import compile_inventory
from tests.sim.inventory import SimHost
from tests.sim.tree import Module, write_tree


@dataclass(frozen=True)
class SimRoot:
    """`path` holds etc/qwen-sim, run, proc and sys; `path/bin` and `path/lib` hold nvidia-smi and the library."""

    path: Path
    host: SimHost

    @classmethod
    def create(cls, path: Path, host: SimHost, module: Module | str | None = "inventory") -> Self:
        """Lay the machine out. `module`: what is loaded; None for a machine whose driver is not."""
        loaded = Module(host.driver, host.module) if isinstance(module, str) else module
        (path / "etc/qwen-sim").mkdir(parents=True)
        (path / "run").mkdir()
        (path / "etc/qwen-sim/inventory").write_text(compile_inventory(host))
        write_tree(path, host, loaded)
        built = build.programs()
        for folder, program in (("lib", built.library), ("bin", built.smi)):
            (path / folder).mkdir()
            (path / folder / program.name).symlink_to(program)
        return cls(path, host)

    @property
    def library(self) -> Path:
        """The NVML library of this machine."""
        return self.path / "lib/libnvidia-ml.so.1"

    def environment(self) -> dict[str, str]:
        """Environment in which a child process sees the machine."""
        return {
            **os.environ,
            "QWEN_SIM_ROOT": str(self.path),
            "LD_LIBRARY_PATH": str(self.path / "lib"),
            "PATH": f"{self.path / 'bin'}:{os.environ.get('PATH', '')}",
            "LC_ALL": "C",
        }

    def run(self, *command: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine, e.g. `run("nvidia-smi", "-L")`; its exit code is not judged."""
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=timeout)

    def set_faults(self, fault: faults.Fault) -> None:
        """Break what `fault` says and mend everything else; running clients notice at their next call."""
        present = self.library.is_symlink()
        if fault.nvml_missing and present:
            self.library.unlink()
        if not fault.nvml_missing and not present:
            self.library.symlink_to(build.programs().library)
        place = self.path / "etc/qwen-sim/faults"
        new = place.with_suffix(".new")
        new.write_text(fault.text())
        new.replace(place)

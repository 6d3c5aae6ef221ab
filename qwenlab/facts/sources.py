"""A recording read source by source: which captures there are, which could be read, and what each says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from qwenlab.facts.kernel_log import KernelLog, parse_kernel_log
from qwenlab.facts.nvml_dump import parse_nvml
from qwenlab.facts.pci import PciBus, parse_lspci, parse_sysfs
from qwenlab.facts.procfs import parse_proc_gpus
from qwenlab.facts.readings import Failure, ParseError, Reading
from qwenlab.facts.recording import Recording
from qwenlab.facts.smi_query import parse_query
from qwenlab.facts.smi_table import parse_list
from qwenlab.facts.smi_text import parse_text
from qwenlab.facts.smi_values import failure as smi_failure
from qwenlab.facts.smi_xml import parse_xml
from qwenlab.facts.topology import Topology, parse_peer_matrix, parse_topology

# timeout(1)'s statuses: the limit was reached, or it had to kill.
_TIMED_OUT = (124, 137)
_NOT_FOUND = 127
# nvidia-smi's forms besides its XML report, the fullest first.
_SMI_FORMS: tuple[tuple[str, Callable[[str], Reading]], ...] = (
    ("smi_table", parse_text),
    ("smi_list", parse_list),
    ("smi_query", parse_query),
)
_Value = TypeVar("_Value")


@dataclass
class Sources:
    """Every source's reading. `unreadable` names captures that are there but could not be read, and why."""

    nvml: Reading | None = None
    smi: list[Reading] = field(default_factory=list)
    topology: Topology | None = None
    peers_read: dict[tuple[int, int], str] = field(default_factory=dict)
    peers_write: dict[tuple[int, int], str] = field(default_factory=dict)
    procfs: Reading | None = None
    bus: PciBus | None = None
    lspci: Reading | None = None
    kernel: KernelLog = field(default_factory=lambda: parse_kernel_log(""))
    unreadable: dict[str, str] = field(default_factory=dict)
    timed_out: tuple[str, ...] = ()

    @property
    def driver_readings(self) -> list[Reading]:
        """NVML first, then nvidia-smi's forms."""
        return [*([self.nvml] if self.nvml else []), *self.smi]

    @property
    def failure(self) -> Failure | None:
        """Why no source of the driver lists a card; None when one does."""
        if any(reading.cards for reading in self.driver_readings):
            return None
        failures = [reading.failure for reading in self.driver_readings if reading.failure]
        if self.timed_out:
            failures.insert(0, Failure("probe_timeout", f"{', '.join(self.timed_out)} did not answer in time"))
        # NVML's absence says less than nvidia-smi's words about the same driver.
        return next((item for item in failures if item.code not in ("nvml_missing", "smi_missing")), None) or (
            failures[0] if failures else None
        )


def read(recording: Recording) -> Sources:
    """Parse every capture; what cannot be read is named in `unreadable`, nothing raises."""
    sources = Sources()

    def attempt(name: str, parse: Callable[[str], _Value]) -> _Value | None:
        text = recording.text(name)
        if text is None or recording.statuses.get(name) in (_NOT_FOUND, *_TIMED_OUT):
            return None
        try:
            return parse(text)
        except ParseError as error:
            sources.unreadable[name] = str(error)
            return None

    sources.nvml = attempt("nvml", parse_nvml)
    report = attempt("smi_xml", parse_xml)
    if report is not None:
        sources.smi.append(report)
    if report is None or not report.cards:
        sources.smi += [reading for name, parse in _SMI_FORMS if (reading := attempt(name, parse))]
    if _speaks(recording, "topo"):
        sources.topology = attempt("topo", parse_topology)
    elif (words := smi_failure(recording.text("topo") or "")) is not None:
        sources.smi.append(Reading(failure=words))  # last: it says least
    for name, into in (("p2p_read", sources.peers_read), ("p2p_write", sources.peers_write)):
        if _speaks(recording, name):
            into.update(attempt(name, parse_peer_matrix) or {})
    sources.procfs = attempt("proc_gpus", parse_proc_gpus)
    sources.bus = attempt("pci", parse_sysfs)
    sources.lspci = attempt("lspci", parse_lspci)
    sources.kernel = parse_kernel_log(recording.captures.get("kernel", ""))
    sources.timed_out = tuple(name for name, status in recording.statuses.items() if status in _TIMED_OUT)
    return sources


def _speaks(recording: Recording, name: str) -> bool:
    """Whether a matrix is worth parsing: with a dead driver the capture holds the driver's message instead."""
    text = recording.text(name)
    if text is None:
        return False
    return smi_failure(text) is None or re.search(r"\bGPU[0-9]", text) is not None

"""Recordings for the tests: the corpus, the recorded machines, and simulated hosts gathered by the real script."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from qwenlab.facts import gather
from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.published import parse_published
from qwenlab.facts.recording import Recording, from_output
from qwenlab.host_inventory import HostInventory
from tests.sim import inventory as sim
from tests.sim.faults import Fault
from tests.sim.local import SimRoot

DATA = Path(__file__).parent.parent / "data"
CORPUS = sorted((DATA / "corpus").glob("*.yaml"))
H200_PAIR = DATA / "recorded" / "h200x2-nvswitch"


def corpus(number: str) -> HostInventory:
    """The inventory of one corpus file, by its number."""
    return build_inventory(recording_of(corpus_path(number)))


def recording_of(path: Path) -> Recording:
    """What one corpus file holds."""
    return parse_published(path.read_text(encoding="utf-8"))


def corpus_path(number: str) -> Path:
    """One corpus file, by its number."""
    return next(path for path in CORPUS if path.name.startswith(f"{number}-"))


def expected(path: Path) -> dict[str, Any]:
    """What the file says must come out."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())["expected"]
    return found


def codes(inventory: HostInventory) -> set[str]:
    """The diagnosis codes of an inventory."""
    return {item.code for item in inventory.diagnoses}


def text_of(inventory: HostInventory, code: str) -> str:
    """The words of the first diagnosis with that code."""
    return next(item.text for item in inventory.diagnoses if item.code == code)


def host(given: dict[str, Any] | None = None, /, **captures: str) -> HostInventory:
    """The inventory of a host of which only these captures are known."""
    return build_inventory(Recording(captures, {}, given or {}))


def gather_simulated(path: Path, name: str, fault: Fault | None = None, module: str | None = "inventory") -> Recording:
    """Run the real gathering script on a simulated machine: its nvidia-smi, its NVML library, its sysfs and procfs."""
    root = SimRoot.create(path, sim.load(name), module)
    if fault is not None:
        root.set_faults(fault)
    return run_script(root)


def run_script(root: SimRoot, without: tuple[str, ...] = ()) -> Recording:
    """Gather a simulated machine again, as a host that lacks the commands in `without`."""
    script = gather.script()
    for command in without:
        script = script.replace(f"command -v {command})", "false)")
    for folder in ("/sys/", "/proc/"):
        script = script.replace(folder, f"{root.path}{folder}")
    done = subprocess.run(["sh"], input=script, env=root.environment(), capture_output=True, text=True, timeout=60)
    return from_output(done.stdout)

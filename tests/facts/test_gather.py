"""The real gathering script on simulated machines: what it finds, and that NVML, nvidia-smi and sysfs agree."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from qwenlab.facts import gather
from qwenlab.facts.agreement import compare
from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.readings import ParseError
from qwenlab.facts.recording import Recording, from_output
from qwenlab.facts.summary import summarise
from qwenlab.host_inventory import Ancestor, ParseState, Source
from tests.facts.hosts import codes, gather_simulated
from tests.sim.faults import Fault

_RECORDED: dict[str, Recording] = {}


def recorded(path: Path, name: str) -> Recording:
    """A healthy machine, gathered once for all tests here."""
    if name not in _RECORDED:
        _RECORDED[name] = gather_simulated(path / "m", name)
    return replace(_RECORDED[name], captures=dict(_RECORDED[name].captures))


@pytest.mark.parametrize("name", ["2xh200", "2x3090-nvlink", "5090-4070tis"])
def test_the_sources_of_a_sound_machine_agree(tmp_path: Path, name: str) -> None:
    lines, agree = compare(recorded(tmp_path, name))
    assert agree, lines
    assert [line.split(":")[0] for line in lines] == ["NVML and nvidia-smi", "NVML and sysfs", "NVML and topo -m"]


def test_the_same_inventory_from_nvml_and_from_nvidia_smi(tmp_path: Path) -> None:
    """All that nvidia-smi can know is the same without NVML; only where it came from differs."""
    recording = recorded(tmp_path, "2x3090-nvlink")
    both = build_inventory(recording)
    recording.captures.pop("nvml")
    without = build_inventory(recording)
    left_out = {"provenance", "memory_reserved_mib"}
    for mine, other in zip(both.gpus, without.gpus, strict=True):
        assert mine.model_dump(exclude=left_out) == other.model_dump(exclude=left_out)
    assert summarise(both) == summarise(without)
    assert both.gpus[0].provenance["uuid"] is Source.NVML
    assert without.gpus[0].provenance["uuid"] is Source.NVIDIA_SMI


def test_a_linked_pair_keeps_its_common_ancestor(tmp_path: Path) -> None:
    (pair,) = build_inventory(recorded(tmp_path, "2xh200")).pairs
    assert (pair.nvlink_lanes, pair.nvlink_generation, pair.nvswitch) == (18, 4, True)
    assert pair.ancestor is Ancestor.PHB
    assert (pair.peer_read, pair.peer_write, pair.peer_refusal) == (True, True, None)


def test_a_bridged_pair_is_no_switch(tmp_path: Path) -> None:
    (pair,) = build_inventory(recorded(tmp_path, "2x3090-nvlink")).pairs
    assert (pair.nvlink_lanes, pair.nvlink_generation, pair.nvswitch) == (4, 3, False)


@pytest.mark.parametrize(
    ("fault", "parse", "usable", "code"),
    [
        (Fault.version_mismatch(), ParseState.ERROR, 0, "driver_library_mismatch"),
        (Fault.lost(1), ParseState.DEGRADED, 2, "gpu_fault"),
        (Fault.absent(1), ParseState.DEGRADED, 2, "gpu_fault"),
        (Fault.error_fields(0), ParseState.DEGRADED, 2, "gpu_fault"),
        (Fault.missing_nvml(), ParseState.ERROR, 0, "nvml_missing"),
        (Fault.missing_fields(0, "power", "ecc"), ParseState.OK, 3, None),
        (Fault.function("nvmlDeviceGetMemoryInfo"), ParseState.OK, 3, None),
        (Fault.smi("No devices were found", 6), ParseState.OK, 3, None),
    ],
    ids=lambda value: "-".join(value.lines)[:40] if isinstance(value, Fault) else str(value),
)
def test_a_faulty_machine_keeps_every_card_and_tells_its_fault(
    tmp_path: Path, fault: Fault, parse: ParseState, usable: int, code: str | None
) -> None:
    inventory = build_inventory(gather_simulated(tmp_path / "m", "3x3090", fault))
    assert len(inventory.gpus) == 3, "a card that is plugged in is never forgotten"
    assert (inventory.parse, len(inventory.usable_gpus)) == (parse, usable), inventory.diagnoses
    if code is not None:
        assert code in codes(inventory)


def test_one_function_not_supported_leaves_the_rest(tmp_path: Path) -> None:
    fault = Fault.function("nvmlDeviceGetPowerManagementLimit", gpu=0)
    first, second = build_inventory(gather_simulated(tmp_path / "m", "2x3090", fault)).gpus
    assert first.power.limit_w == second.power.limit_w
    assert first.provenance["power.limit_w"] is Source.NVIDIA_SMI
    assert second.provenance["power.limit_w"] is Source.NVML


def test_without_a_driver_sysfs_alone_knows_the_cards(tmp_path: Path) -> None:
    recording = gather_simulated(tmp_path / "m", "3090-gtx1080")
    bare = Recording({"pci": recording.captures["pci"]}, {"smi_xml": 127})
    inventory = build_inventory(bare)
    assert [gpu.name for gpu in inventory.gpus] == ["NVIDIA GeForce RTX 3090", "NVIDIA GeForce GTX 1080"]
    assert [gpu.usable for gpu in inventory.gpus] == [True, False]


def test_the_script_is_plain_posix_shell() -> None:
    for shell in ("dash", "bash --posix"):
        done = subprocess.run([*shell.split(), "-n"], input=gather.script(), capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_one_command_of_bounded_size_gathers_a_real_machine() -> None:
    """Linux limits one argument to 128 KiB; the command is run here as a host's shell would run it."""
    command = gather.command()
    assert len(command) < 100_000
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    recording = from_output(done.stdout)
    inventory = build_inventory(recording)
    assert inventory.os.kernel
    assert inventory.cpu_count
    assert inventory.ram_total_gib
    assert inventory.disks
    assert inventory.boot_id


def test_captures_come_back_byte_for_byte() -> None:
    output = "@@@qwenlab topo 0\n\tGPU0 \x1b[0m\n\nX\n\n@@@qwenlab empty 3\n\n@@@qwenlab bare 0\nno newline\n"
    output += "@@@qwenlab end\n"
    recording = from_output(output)
    assert recording.captures == {"topo": "\tGPU0 \x1b[0m\n\nX\n", "empty": "", "bare": "no newline"}
    assert recording.statuses == {"topo": 0, "empty": 3, "bare": 0}


@pytest.mark.parametrize("output", ["", "sh: 1: gzip: not found", "@@@qwenlab topo 0\nGPU0", "@@@qwenlab ?? 0\n"])
def test_cut_output_is_refused(output: str) -> None:
    with pytest.raises(ParseError):
        from_output(output)


@pytest.mark.parametrize(("bus", "told"), [("kept", {"driver_not_installed"}), ("empty", set())])
def test_a_missing_library_is_no_fault_where_nothing_of_nvidia_is(tmp_path: Path, bus: str, told: set[str]) -> None:
    """A host without a card is told that it has none, not to reinstall a library."""
    missing = gather_simulated(tmp_path / "m", "3x3090", Fault.missing_nvml())
    kept = {name: text for name, text in missing.captures.items() if name in ("nvml", "pci", "uname")}
    if bus == "empty":
        kept["pci"] = ""
    inventory = build_inventory(Recording(kept, {name: missing.statuses.get(name, 0) for name in kept}))
    assert set(codes(inventory)) == told, inventory.diagnoses

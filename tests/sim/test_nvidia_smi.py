"""nvidia-smi of a simulated machine: layouts, exit codes and settings of the real tool.

`recorded/` holds byte copies of `nvidia-smi`, `nvidia-smi -q -x` and `nvidia-smi topo -m` of a virtual machine with two
H200 (driver 580.159.04, Ubuntu 24.04), serials and UUIDs replaced.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.sim import faults, inventory
from tests.sim.conftest import Machine
from tests.sim.faults import Fault
from tests.sim.inventory import Process
from tests.sim.local import SimRoot
from tests.sim.tree import Module

RECORDED = Path(__file__).parent / "recorded"
WHEN = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")


@pytest.mark.parametrize(
    ("file", "arguments"), [("smi.txt", []), ("smi.xml", ["-q", "-x"]), ("topo.txt", ["topo", "-m"])]
)
def test_output_equals_the_recording_byte_for_byte(file: str, arguments: list[str], machine: Machine) -> None:
    recorded = (RECORDED / file).read_text()
    when = WHEN.search(recorded)
    shown = machine("2xh200").run("nvidia-smi", *arguments)
    assert shown.returncode == 0
    assert (WHEN.sub(when[0], shown.stdout, count=1) if when else shown.stdout) == recorded


def test_list_names_cards_and_mig_instances(machine: Machine) -> None:
    root = machine("1xa30-mig")
    first, *slices = root.run("nvidia-smi", "-L").stdout.splitlines()
    assert first == f"GPU 0: NVIDIA A30 (UUID: {root.host.uuid(0)})"
    assert slices[0] == "  MIG 1g.6gb      Device  0: (UUID: MIG-0000:00:06.0-0)"
    assert len(slices) == 4


QUERIES = [
    ("index,name,memory.total", "csv", "index, name, memory.total [MiB]\n0, NVIDIA GeForce RTX 3090, 24576 MiB\n"),
    ("name,power.limit,fan.speed", "csv,noheader", "NVIDIA GeForce RTX 3090, 350.00 W, 30 %\n"),
    ("memory.used,memory.free,power.max_limit", "csv,noheader,nounits", "412, 23864, 400.00\n"),
    ("mig.mode.current,ecc.mode.current", "csv,noheader", "[N/A], [N/A]\n"),
    ("pci.bus_id,compute_cap,driver_version", "csv,noheader", "00000000:01:00.0, 8.6, 580.126.09\n"),
    ("display_active,persistence_mode,pstate", "csv,noheader", "Enabled, Disabled, P8\n"),
    ("pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.max", "csv,noheader", "1, 4, 16\n"),
]


@pytest.mark.parametrize(("fields", "form", "expected"), QUERIES)
def test_query_prints_csv(fields: str, form: str, expected: str, machine: Machine) -> None:
    assert machine("1x3090").run("nvidia-smi", f"--query-gpu={fields}", f"--format={form}").stdout == expected


def test_query_refuses_a_field_it_does_not_know(machine: Machine) -> None:
    answer = machine("1x3090").run("nvidia-smi", "--query-gpu=name,colour", "--format=csv")
    assert (answer.returncode, answer.stdout) == (2, 'Field "colour" is not a valid field to query.\n\n')


TOPOLOGIES = [
    ("2x3090-nvlink", ["GPU0\t X \tNV4\t0-31\t0\t\tN/A", "GPU1\tNV4\t X \t0-31\t0\t\tN/A"]),
    ("2x4090", ["GPU0\t X \tSYS\t0-15,32-47\t0\t\tN/A", "GPU1\tSYS\t X \t16-31,48-63\t1\t\tN/A"]),
    ("2xpro6000", ["GPU0\t X \tPIX\t0-31\t0\t\tN/A", "GPU1\tPIX\t X \t0-31\t0\t\tN/A"]),
    ("wsl2-4090", ["GPU0\t X \t\tN/A\t\tN/A"]),
]


@pytest.mark.parametrize(("name", "rows"), TOPOLOGIES)
def test_the_topology_has_a_row_a_card(name: str, rows: list[str], machine: Machine) -> None:
    assert machine(name).run("nvidia-smi", "topo", "-m").stdout.splitlines()[1 : 1 + len(rows)] == rows


def test_topology_lists_network_cards_and_their_legend(machine: Machine) -> None:
    lines = machine("8xh100").run("nvidia-smi", "topo", "-m").stdout.splitlines()
    assert lines[0].endswith("GPU7\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m")
    assert lines[1].split("\t")[8:12] == ["NV18", "PIX", "SYS", "0-47,96-143"]
    assert lines[9].startswith("NIC0\tPIX\tNODE\tNODE\tNODE\tSYS")
    assert lines[-5:] == ["NIC Legend:", "", "  NIC0: mlx5_0", "  NIC1: mlx5_1", ""]


PEERS = [("2x3090-nvlink", "OK"), ("2x3090", "NS"), ("2x4090", "CNS"), ("5090-4070tis", "GNS"), ("4x5060ti", "OK")]


@pytest.mark.parametrize(("name", "status"), PEERS)
def test_the_peer_matrix_gives_each_pair_its_status(name: str, status: str, machine: Machine) -> None:
    lines = machine(name).run("nvidia-smi", "topo", "-p2p", "r").stdout.splitlines()
    assert lines[1].split("\t")[:3] == [" GPU0", "X", status]


def test_power_limit_by_uuid_touches_that_card_only(machine: Machine) -> None:
    root = machine("2x3090-nvlink")
    done = root.run("nvidia-smi", "-i", root.host.uuid(1), "-pl", "280")
    assert done.stdout == "Power limit for GPU 00000000:02:00.0 was set to 280.00 W from 350.00 W.\nAll done.\n"
    limits = root.run("nvidia-smi", "--query-gpu=power.limit,enforced.power.limit", "--format=csv,noheader").stdout
    assert limits == "350.00 W, 350.00 W\n280.00 W, 280.00 W\n"


SETTINGS = [
    # fault, command, exit code, words
    (faults.NONE, ["-pl", "500"], 2, "should be between 100.00 W and 400.00 W"),
    (Fault.power_refused(), ["-pl", "300"], 4, "Insufficient Permissions"),
    (Fault.missing_fields(0, "power"), ["-pl", "300"], 0, "not supported for GPU: 00000000:01:00.0"),
    (faults.NONE, ["-pm", "1"], 0, "Enabled persistence mode for GPU 00000000:01:00.0."),
    (faults.NONE, ["-pm", "0"], 0, "Persistence mode is already Disabled for GPU 00000000:01:00.0."),
    (faults.NONE, ["-i", "7", "-pl", "300"], 6, "No devices were found"),
]


@pytest.mark.parametrize(("fault", "command", "code", "words"), SETTINGS)
def test_settings_answer_like_the_real_tool(
    fault: Fault, command: list[str], code: int, words: str, machine: Machine
) -> None:
    root = machine("1x3090")
    root.set_faults(fault)
    done = root.run("nvidia-smi", *command)
    assert done.returncode == code
    assert words in done.stdout


def test_only_root_may_set_power(machine: Machine) -> None:
    if os.geteuid() != 0:
        assert machine("1x3090").run("nvidia-smi", "-pl", "300").returncode == faults.NO_PERMISSION
        return
    root = machine("1x3090")
    for folder in (root.path, *root.path.parents[:-1]):
        folder.chmod(folder.stat().st_mode | 0o055)
    copies = root.path / "copies"
    copies.mkdir()
    for name in ("bin/nvidia-smi", "lib/libnvidia-ml.so.1"):
        (copies / Path(name).name).write_bytes((root.path / name).read_bytes())
    (copies / "nvidia-smi").chmod(0o755)
    command = f"LD_LIBRARY_PATH={copies} QWEN_SIM_ROOT={root.path} {copies}/nvidia-smi -pl 300"
    done = root.run("setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", command)
    assert done.returncode == faults.NO_PERMISSION, done.stdout + done.stderr


FAILURES = [
    # loaded module, fault, exit code, output
    (None, faults.NONE, 9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
    (Module("580.95.05", "open"), faults.NONE, 18, "Failed to initialize NVML: Driver/library version mismatch"),
    (Module("580.95.05", "open"), faults.NONE, 18, "NVML library version: 580.126\n"),
    ("inventory", Fault.missing_nvml(), 12, "couldn't find libnvidia-ml.so library in your system"),
    ("inventory", Fault.init_fails(999), 255, "Failed to initialize NVML: Unknown Error"),
    ("inventory", Fault.lost(1), 15, "Unable to determine the device handle for GPU1: 0000:02:00.0: GPU is lost."),
    ("inventory", Fault.lost(0, 999), 255, "Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown"),
    ("inventory", Fault.absent(0) | Fault.absent(1), 6, "No devices were found\n"),
    ("inventory", Fault.smi("Segmentation fault", 139), 139, "Segmentation fault\n"),
]


@pytest.mark.parametrize(("module", "fault", "code", "words"), FAILURES)
def test_failures_have_the_real_words_and_exit_codes(
    module: Module | str | None, fault: Fault, code: int, words: str, tmp_path: Path
) -> None:
    root = SimRoot.create(tmp_path / "m", inventory.load("2x3090-nvlink"), module)
    root.set_faults(fault)
    answer = root.run("nvidia-smi")
    assert answer.returncode == code
    assert words in answer.stdout


def test_a_broken_card_shows_err_in_its_row_only(machine: Machine) -> None:
    root = machine("2x3090-nvlink")
    root.set_faults(Fault.error_fields(1))
    rows = [line for line in root.run("nvidia-smi").stdout.splitlines() if line.startswith("|")]
    broken = next(place for place, line in enumerate(rows) if line.startswith("|   1  ERR!"))
    assert rows[broken + 1].startswith("|ERR!  ERR! ERR! ")
    assert {len(line) for line in rows} == {91}
    assert any(line.startswith("|   0  NVIDIA GeForce RTX 3090") for line in rows)
    queried = root.run("nvidia-smi", "--query-gpu=name,power.draw", "--format=csv,noheader").stdout.splitlines()
    assert queried[1] == "[Unknown Error], [Unknown Error]"


def test_unreadable_fields_become_na_everywhere(machine: Machine) -> None:
    root = machine("1x3090")
    root.set_faults(Fault.missing_fields(0, "power.draw", "memory.used"))
    gpu = ElementTree.fromstring(root.run("nvidia-smi", "-q", "-x").stdout).find("gpu")
    assert gpu is not None
    assert gpu.findtext("gpu_power_readings/instant_power_draw") == "N/A"
    assert gpu.findtext("fb_memory_usage/used") == "N/A"
    assert "N/A /  350W" in root.run("nvidia-smi").stdout


def test_processes_show_in_table_xml_and_query(machine: Machine) -> None:
    root = machine("2x3090")
    root.set_faults(Fault.processes(1, Process(pid=4242, mib=5000, name="/usr/bin/python3")))
    table = root.run("nvidia-smi").stdout
    assert "|    1   N/A  N/A            4242      C   /usr/bin/python3                       5000MiB |" in table
    assert "5000MiB /  24576MiB" in table
    xml = ElementTree.fromstring(root.run("nvidia-smi", "-q", "-x").stdout)
    assert [node.findtext("pid") for node in xml.iter("process_info")] == ["4242"]
    queried = root.run("nvidia-smi", "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader").stdout
    assert queried == f"4242, 5000 MiB, {root.host.uuid(1)}\n"


def test_branch_610_has_other_header_words(tmp_path: Path) -> None:
    host = inventory.load("1x3090").model_copy(update={"driver": "610.57.04", "cuda": "13.3"})
    line = SimRoot.create(tmp_path / "m", host).run("nvidia-smi").stdout.splitlines()[2]
    assert line == ("| NVIDIA-SMI 610.57.04              KMD Version: 610.57.04     CUDA UMD Version: 13.3     |")


@pytest.mark.parametrize("name", [name for name in inventory.names() if name != "no-gpu"])
def test_every_machine_prints_well_formed_xml_of_all_its_cards(name: str, machine: Machine) -> None:
    root = machine(name)
    log = ElementTree.fromstring(root.run("nvidia-smi", "-q", "-x").stdout)
    assert log.findtext("attached_gpus") == str(len(root.host.gpus))
    assert [gpu.findtext("uuid") for gpu in log.iter("gpu")] == [root.host.uuid(i) for i in range(len(root.host.gpus))]

"""The library as the real nvidia-ml-py sees it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.sim import faults, inventory
from tests.sim.conftest import Machine
from tests.sim.faults import Fault
from tests.sim.inventory import Process
from tests.sim.local import SimRoot
from tests.sim.tree import Module

Bind = Callable[[SimRoot], ModuleType]


def test_two_recorded_h200_answer_as_the_real_ones_did(machine: Machine, nvml: Bind) -> None:
    """Values that nvidia-ml-py 13 returned on two H200 behind an NVSwitch, driver 580.159.04."""
    n = nvml(machine("2xh200"))
    first, second = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    assert n.nvmlSystemGetDriverVersion() == "580.159.04"
    assert n.nvmlSystemGetCudaDriverVersion_v2() == 13000
    assert n.nvmlSystemGetNVMLVersion() == "13.580.159.04"
    assert n.nvmlDeviceGetCount() == 2
    assert n.nvmlDeviceGetName(first) == "NVIDIA H200"
    assert n.nvmlDeviceGetMemoryInfo(first).total == 150754820096
    assert n.nvmlDeviceGetCudaComputeCapability(first) == (9, 0)
    assert (n.nvmlDeviceGetMaxPcieLinkGeneration(first), n.nvmlDeviceGetMaxPcieLinkWidth(first)) == (5, 16)
    assert n.nvmlDeviceGetPowerManagementLimit(first) == 700000
    assert n.nvmlDeviceGetPersistenceMode(first) == 1
    assert n.nvmlDeviceGetDisplayActive(first) == 0
    assert n.nvmlDeviceGetMemoryBusWidth(first) == 6016
    assert [n.nvmlDeviceGetPciInfo(card).busId for card in (first, second)] == ["00000000:00:06.0", "00000000:00:07.0"]
    assert [n.nvmlDeviceGetNvLinkState(first, link) for link in range(18)] == [1] * 18
    assert n.nvmlDeviceGetNvLinkRemoteDeviceType(first, 0) == 2
    assert n.nvmlDeviceGetNvLinkRemotePciInfo(first, 0).busId == "FFFFFFFF:FF:FF.0"
    with pytest.raises(n.NVMLError_InvalidArgument):
        n.nvmlDeviceGetNvLinkState(first, 18)
    assert n.nvmlDeviceGetTopologyCommonAncestor(first, second) == n.NVML_TOPOLOGY_HOSTBRIDGE
    assert [n.nvmlDeviceGetP2PStatus(first, second, kind) for kind in range(5)] == [0, 0, 0, 0, 5]


def test_memory_forms_agree_on_what_the_driver_keeps(machine: Machine, nvml: Bind) -> None:
    n = nvml(machine("1x3090"))
    card = n.nvmlDeviceGetHandleByIndex(0)
    old, new = n.nvmlDeviceGetMemoryInfo(card), n.nvmlDeviceGetMemoryInfo(card, version=n.nvmlMemory_v2)
    mib = 1 << 20
    assert (new.total, new.reserved, new.used) == (24576 * mib, 300 * mib, 412 * mib)
    assert old.used == new.used + new.reserved
    assert old.free == new.free == new.total - new.reserved - new.used


@pytest.mark.parametrize("name", inventory.names())
def test_every_machine_shows_what_its_inventory_says(name: str, machine: Machine, nvml: Bind) -> None:
    root = machine(name)
    n, host = nvml(root), root.host
    cards = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
    assert [n.nvmlDeviceGetUUID(card) for card in cards] == [host.uuid(i) for i in range(len(host.gpus))]
    for index, (card, gpu) in enumerate(zip(cards, host.gpus, strict=True)):
        assert n.nvmlDeviceGetName(card) == gpu.card
        assert n.nvmlDeviceGetIndex(card) == index
        assert n.nvmlDeviceGetPciInfo(card).pciDeviceId == int(gpu.model.id + "10DE", 16)
        major, minor = n.nvmlDeviceGetCudaComputeCapability(card)
        assert f"{major}.{minor}" == gpu.model.cc
        by_bus = n.nvmlDeviceGetHandleByPciBusId(gpu.bus.encode())
        by_uuid = n.nvmlDeviceGetHandleByUUID(host.uuid(index).encode())
        assert n.nvmlDeviceGetIndex(by_bus) == n.nvmlDeviceGetIndex(by_uuid) == index
        assert n.nvmlDeviceGetPowerManagementLimitConstraints(card) == [w * 1000 for w in gpu.model.power[1:]]
        assert bool(n.nvmlDeviceGetDisplayActive(card)) is gpu.display
    for a, one in enumerate(cards):
        for b, two in enumerate(cards):
            if a != b:
                pair = host.pair(a, b)
                wanted = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}[str(pair.ancestor)]
                assert n.nvmlDeviceGetTopologyCommonAncestor(one, two) == wanted
                assert (n.nvmlDeviceGetP2PStatus(one, two, 0) == 0) is (pair.peer == "OK")


def test_nvlink_bridge_names_its_far_end_and_lanes(machine: Machine, nvml: Bind) -> None:
    n = nvml(machine("3x3090"))
    cards = [n.nvmlDeviceGetHandleByIndex(i) for i in range(3)]
    ends = [n.nvmlDeviceGetNvLinkRemotePciInfo(cards[0], link).busId for link in range(4)]
    assert ends == ["00000000:21:00.0"] * 4
    assert n.nvmlDeviceGetNvLinkVersion(cards[0], 0) == n.NVML_NVLINK_VERSION_3_0
    assert n.nvmlDeviceGetNvLinkCapability(cards[0], 0, n.NVML_NVLINK_CAP_P2P_SUPPORTED) == 1
    assert [n.nvmlDeviceGetNvLinkState(cards[2], link) for link in range(4)] == [0] * 4
    with pytest.raises(n.NVMLError_InvalidArgument):
        n.nvmlDeviceGetNvLinkState(cards[0], 4)


def test_a_card_without_nvlink_says_so(machine: Machine, nvml: Bind) -> None:
    n = nvml(machine("2x4090"))
    with pytest.raises(n.NVMLError_NotSupported):
        n.nvmlDeviceGetNvLinkState(n.nvmlDeviceGetHandleByIndex(0), 0)


def test_affinity_masks_name_processors_and_node(machine: Machine, nvml: Bind) -> None:
    n = nvml(machine("2x4090"))
    second = n.nvmlDeviceGetHandleByIndex(1)
    words = list(n.nvmlDeviceGetCpuAffinity(second, 1))
    assert words == [sum(1 << cpu for cpu in [*range(16, 32), *range(48, 64)])]
    assert list(n.nvmlDeviceGetMemoryAffinity(second, 1, 0)) == [2]


def test_mig_instances_are_cards_of_their_own(machine: Machine, nvml: Bind) -> None:
    n = nvml(machine("1xa30-mig"))
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert n.nvmlDeviceGetMigMode(card) == [1, 1]
    piece = n.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
    assert n.nvmlDeviceGetName(piece) == "NVIDIA A30 MIG 1g.6gb"
    assert n.nvmlDeviceGetUUID(piece).startswith("MIG-")
    assert n.nvmlDeviceGetMemoryInfo(piece).total == 5952 << 20
    assert n.nvmlDeviceGetAttributes_v2(piece).memorySizeMB == 5952
    assert [n.nvmlDeviceIsMigDeviceHandle(handle).value for handle in (piece, card)] == [1, 0]
    with pytest.raises(n.NVMLError_NotFound):
        n.nvmlDeviceGetMigDeviceHandleByIndex(card, 4)


def test_fabric_state_in_every_struct_version(machine: Machine, nvml: Bind) -> None:
    n = nvml(machine("8xh100"))
    card = n.nvmlDeviceGetHandleByIndex(0)
    for make in (n.c_nvmlGpuFabricInfo_v2_t, n.c_nvmlGpuFabricInfo_v3_t):
        info = make()
        n.nvmlDeviceGetGpuFabricInfoV(card, n.byref(info))
        assert (info.state, info.status) == (n.NVML_GPU_FABRIC_STATE_COMPLETED, 0)
    wrong = n.c_nvmlGpuFabricInfo_v2_t()
    wrong.version = 0x07000024
    with pytest.raises(n.NVMLError_ArgumentVersionMismatch):
        n.nvmlDeviceGetGpuFabricInfoV(card, n.byref(wrong))


def test_a_dead_fabric_manager_leaves_no_link(machine: Machine, nvml: Bind) -> None:
    n = nvml(machine("8xa100-no-fabric-manager"))
    card = n.nvmlDeviceGetHandleByIndex(0)
    assert [n.nvmlDeviceGetNvLinkState(card, link) for link in range(12)] == [0] * 12


def test_sensors_clocks_and_extended_pci(machine: Machine, nvml: Bind) -> None:
    n = nvml(machine("1x3090"))
    card = n.nvmlDeviceGetHandleByIndex(0)
    info = n.nvmlPciInfoExt_v1_t()
    info.version = n.nvmlPciInfoExt_v1
    n.nvmlDeviceGetPciInfoExt(card, n.byref(info))
    assert (info.bus, info.baseClass, info.subClass) == (1, 3, 0)
    assert n.nvmlDeviceGetTemperatureV(card, 0) == n.nvmlDeviceGetTemperature(card, 0) == 33
    assert n.nvmlDeviceGetClockInfo(card, n.NVML_CLOCK_GRAPHICS) == 345
    assert n.nvmlDeviceGetMaxClockInfo(card, n.NVML_CLOCK_MEM) == 9751
    assert n.nvmlDeviceGetArchitecture(card) == n.NVML_DEVICE_ARCH_AMPERE
    assert n.nvmlDeviceGetBrand(card) == n.NVML_BRAND_GEFORCE
    assert n.nvmlDeviceGetPerformanceState(card) == 8
    assert n.nvmlDeviceGetUtilizationRates(card).gpu == 0
    assert n.nvmlDeviceGetBAR1MemoryInfo(card).bar1Total == 256 << 20
    values = n.nvmlDeviceGetFieldValues(card, [n.NVML_FI_DEV_NVLINK_LINK_COUNT, n.NVML_FI_DEV_POWER_MAX_LIMIT, 1])
    assert [(v.nvmlReturn, v.value.uiVal) for v in values[:2]] == [(0, 4), (0, 400000)]
    assert values[2].nvmlReturn == faults.NOT_SUPPORTED
    with pytest.raises(n.NVMLError_NotSupported):
        n.nvmlDeviceGetEccMode(card)


def test_power_limit_is_kept_within_the_card_range_until_the_next_boot(machine: Machine, nvml: Bind) -> None:
    root = machine("2x3090-nvlink")
    n = nvml(root)
    first, second = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    n.nvmlDeviceSetPowerManagementLimit(first, 280_000)
    n.nvmlDeviceSetPersistenceMode(second, 1)
    assert [n.nvmlDeviceGetPowerManagementLimit(card) for card in (first, second)] == [280_000, 350_000]
    assert [n.nvmlDeviceGetPersistenceMode(card) for card in (first, second)] == [0, 1]
    with pytest.raises(n.NVMLError_InvalidArgument):
        n.nvmlDeviceSetPowerManagementLimit(first, 401_000)
    (root.path / "run/qwen-sim/state").unlink()  # what a boot does to /run
    assert n.nvmlDeviceGetPowerManagementLimit(first) == 350_000


def _power(n: ModuleType, card: Any) -> Any:
    return n.nvmlDeviceGetPowerUsage(card)


RUNTIME_FAULTS = [
    # fault, call on the second card, error
    (Fault.lost(1), lambda n, c: n.nvmlDeviceGetName(c), "NVMLError_GpuIsLost"),
    (Fault.lost(1), lambda n, c: n.nvmlDeviceGetHandleByIndex(1), "NVMLError_GpuIsLost"),
    (Fault.lost(1, faults.UNKNOWN), lambda n, c: n.nvmlDeviceGetHandleByIndex(1), "NVMLError_Unknown"),
    (Fault.missing_fields(1, "power"), _power, "NVMLError_NotSupported"),
    (Fault.error_fields(1, "power"), _power, "NVMLError_Unknown"),
    (Fault.function("nvmlDeviceGetMemoryInfo"), lambda n, c: n.nvmlDeviceGetMemoryInfo(c), "NVMLError_NotSupported"),
    (Fault.function("nvmlDeviceGetPciInfo", 13), lambda n, c: n.nvmlDeviceGetPciInfo(c), "NVMLError_FunctionNotFound"),
    (Fault.function("nvmlDeviceGetUUID", 999, gpu=1), lambda n, c: n.nvmlDeviceGetUUID(c), "NVMLError_Unknown"),
    (Fault.power_refused(), lambda n, c: n.nvmlDeviceSetPowerManagementLimit(c, 300_000), "NVMLError_NoPermission"),
    (Fault.absent(1), lambda n, c: n.nvmlDeviceGetHandleByIndex(1), "NVMLError_InvalidArgument"),
]


@pytest.mark.parametrize(
    ("fault", "call", "error"), RUNTIME_FAULTS, ids=[f"{f.lines}-{e}" for f, _, e in RUNTIME_FAULTS]
)
def test_faults_strike_running_clients_and_heal(
    fault: Fault, call: Callable[[ModuleType, Any], Any], error: str, machine: Machine, nvml: Bind
) -> None:
    root = machine("2x3090-nvlink")
    n = nvml(root)
    first, second = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    root.set_faults(fault)
    with pytest.raises(n.NVMLError) as caught:
        call(n, second)
    assert type(caught.value).__name__ == error
    assert n.nvmlDeviceGetIndex(first) == 0
    root.set_faults(faults.NONE)
    call(n, second)


def test_fields_links_and_peers_change_under_way(machine: Machine, nvml: Bind) -> None:
    root = machine("2x3090-nvlink")
    n = nvml(root)
    first, second = (n.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    root.set_faults(Fault.nvlink_down(0, 2) | Fault.peer(1, 0, "TNS") | Fault.field(0, "temperature.gpu", "91"))
    assert [n.nvmlDeviceGetNvLinkState(first, link) for link in range(4)] == [1, 1, 0, 1]
    assert n.nvmlDeviceGetP2PStatus(first, second, 1) == n.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED
    assert n.nvmlDeviceGetTemperature(first, 0) == 91


def test_a_process_holds_memory_until_it_ends(machine: Machine, nvml: Bind) -> None:
    root = machine("1x3090")
    n = nvml(root)
    card = n.nvmlDeviceGetHandleByIndex(0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as other:
        root.set_faults(Fault.processes(0, Process(pid=other.pid, mib=5000, name="train.py", always=False)))
        (held,) = n.nvmlDeviceGetComputeRunningProcesses_v3(card)
        assert (held.pid, held.usedGpuMemory) == (other.pid, 5000 << 20)
        assert n.nvmlSystemGetProcessName(other.pid) == "train.py"
        assert n.nvmlDeviceGetMemoryInfo(card, version=n.nvmlMemory_v2).used == (412 + 5000) << 20
    assert n.nvmlDeviceGetComputeRunningProcesses_v3(card) == []
    assert n.nvmlDeviceGetMemoryInfo(card, version=n.nvmlMemory_v2).used == 412 << 20


INIT = [
    # loaded module, fault, error of nvmlInit
    (None, faults.NONE, "NVMLError_DriverNotLoaded"),
    (Module("580.95.05", "open"), faults.NONE, "NVMLError_LibRmVersionMismatch"),
    (Module("580.126.09", "open"), Fault.version_mismatch(), "NVMLError_LibRmVersionMismatch"),
    (Module("580.126.09", "open"), Fault.init_fails(17), "NVMLError_OperatingSystem"),
    (Module("580.126.09", "open"), Fault.missing_nvml(), "NVMLError_LibraryNotFound"),
]


@pytest.mark.parametrize(("module", "fault", "error"), INIT)
def test_what_stops_nvml_from_starting(module: Module | None, fault: Fault, error: str, tmp_path: Path) -> None:
    root = SimRoot.create(tmp_path / "m", inventory.load("1x3090"), module)
    root.set_faults(fault)
    script = "import pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as e: print(type(e).__name__)"
    assert root.run(sys.executable, "-c", script).stdout.strip() == error


SILICON = [
    # machine, module, cards that appear
    ("1x5090", Module("580.126.09", "open"), 1),
    ("1x5090", Module("580.126.09", "proprietary"), 0),  # Blackwell has no proprietary module
    ("1x5090", Module("565.57.01", "open"), 0),  # nor a branch before 570
    ("3090-gtx1080", Module("580.126.09", "proprietary"), 2),
    ("3090-gtx1080", Module("580.126.09", "open"), 1),  # the open module drives Turing and later only
    ("3090-gtx1080", Module("595.91.07", "proprietary"), 1),  # 580 is Pascal's last branch
]


@pytest.mark.parametrize(("name", "module", "count"), SILICON)
def test_a_module_shows_only_the_silicon_it_drives(name: str, module: Module, count: int, tmp_path: Path) -> None:
    host = inventory.load(name).model_copy(update={"driver": module.version})
    root = SimRoot.create(tmp_path / "m", host, module)
    listed = root.run("nvidia-smi", "-L")
    assert listed.stdout.count("UUID") == count
    assert listed.returncode == (0 if count else 6)

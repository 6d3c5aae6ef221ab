"""Runs on the target, embedded in `gather.sh` behind the source of nvidia-ml-py: dumps what NVML answers as JSON.

Every call stands alone: its value, or `{"error": class, "code": number}`. Then a capture `acs`: whether a bridge above
an NVIDIA card redirects peer traffic. Standard library only, Python 3.8 or newer.
"""

import glob
import json
import os
import sys
from typing import Any


def call(function: Any, *arguments: Any) -> Any:
    """A call's value as JSON knows it, or its error."""
    try:
        return plain(function(*arguments))
    except Exception as error:  # bindings newer than the driver raise more than NVMLError
        return failed(error)


def failed(error: Any) -> Any:
    """An error as the dump writes it."""
    return {"error": type(error).__name__, "code": getattr(error, "value", None)}


def plain(value: Any) -> Any:
    """ctypes and bytes as JSON's own types."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (int, float, str)) or value is None:
        return value
    return list(value) if hasattr(value, "__len__") else int(value)


def named(name: Any) -> Any:
    """A binding by name; a missing one fails only when it is called."""
    return getattr(pynvml, name, None) or missing


def missing(*_: Any) -> Any:
    """Stands for a function that this library lacks."""
    raise AttributeError


def memory(handle: Any) -> Any:
    """Bytes of a card; those that the driver reserves are told by newer libraries alone."""
    try:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except Exception:
        info = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return {name: int(getattr(info, name)) for name in ("total", "used", "reserved") if hasattr(info, name)}


def bar1(handle: Any) -> Any:
    """Bytes of the window through which others reach a card's memory."""
    info = pynvml.nvmlDeviceGetBAR1MemoryInfo(handle)
    return {"total": int(info.bar1Total), "used": int(info.bar1Used)}


def fabric(handle: Any) -> Any:
    """State of the NVSwitch fabric as the card sees it, in NVML's numbers."""
    info = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(handle, pynvml.byref(info))
    return {"state": int(info.state), "status": int(info.status)}


def pci(handle: Any) -> Any:
    """Where a card sits, and its PCI ids."""
    info = pynvml.nvmlDeviceGetPciInfo(handle)
    return {"bus_id": plain(info.busId), "device": int(info.pciDeviceId), "subsystem": int(info.pciSubSystemId)}


def structured(function: Any, handle: Any) -> Any:
    """What a function says of a card, or how it failed."""
    try:
        return function(handle)
    except Exception as error:
        return failed(error)


def links(handle: Any) -> Any:
    """NVLink ports, until NVML names no further one."""
    found: Any = []
    for link in range(getattr(pynvml, "NVML_NVLINK_MAX_LINKS", 18)):
        state = call(named("nvmlDeviceGetNvLinkState"), handle, link)
        if isinstance(state, dict):
            if state["error"] == "NVMLError_NotSupported" and not found:
                return []
            break
        entry: Any = {"link": link, "state": state}
        if state:
            entry["version"] = call(named("nvmlDeviceGetNvLinkVersion"), handle, link)
            entry["remote_type"] = call(named("nvmlDeviceGetNvLinkRemoteDeviceType"), handle, link)
            entry["remote_bus"] = structured(
                lambda device, number=link: plain(pynvml.nvmlDeviceGetNvLinkRemotePciInfo(device, number).busId), handle
            )
        found.append(entry)
    return found


def mig_devices(handle: Any) -> Any:
    """The instances of a card in MIG mode."""
    found: Any = []
    count = call(named("nvmlDeviceGetMaxMigDeviceCount"), handle)
    for index in range(count if isinstance(count, int) else 0):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except Exception:
            continue
        size = structured(memory, instance)
        found.append(
            {
                "uuid": call(named("nvmlDeviceGetUUID"), instance),
                "name": call(named("nvmlDeviceGetName"), instance),
                "memory": size.get("total", size),
            }
        )
    return found


def processes(handle: Any) -> Any:
    """How many compute programs are on a card, those that share it by MPS among them."""
    count = 0
    for name in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses"):
        found = structured(lambda device, name=name: [int(item.pid) for item in named(name)(device)], handle)
        count += len(found) if isinstance(found, list) else 0
    return count


CALLS = {
    "uuid": "nvmlDeviceGetUUID",
    "name": "nvmlDeviceGetName",
    "compute_capability": "nvmlDeviceGetCudaComputeCapability",
    "architecture": "nvmlDeviceGetArchitecture",
    "display_active": "nvmlDeviceGetDisplayActive",
    "display_attached": "nvmlDeviceGetDisplayMode",
    "persistence": "nvmlDeviceGetPersistenceMode",
    "ecc": "nvmlDeviceGetEccMode",
    "mig": "nvmlDeviceGetMigMode",
    "compute_mode": "nvmlDeviceGetComputeMode",
    "generation_now": "nvmlDeviceGetCurrPcieLinkGeneration",
    "generation_max": "nvmlDeviceGetMaxPcieLinkGeneration",
    "generation_device_max": "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "width_now": "nvmlDeviceGetCurrPcieLinkWidth",
    "width_max": "nvmlDeviceGetMaxPcieLinkWidth",
    "replays": "nvmlDeviceGetPcieReplayCounter",
    "power_limit": "nvmlDeviceGetPowerManagementLimit",
    "power_default": "nvmlDeviceGetPowerManagementDefaultLimit",
    "power_range": "nvmlDeviceGetPowerManagementLimitConstraints",
}
STRUCTURES = {"memory": memory, "bar1": bar1, "pci": pci, "fabric": fabric}


def device(index: Any) -> Any:
    """Everything about one card; a card without a handle keeps its index and its error."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:
        return None, {"index": index, "handle": failed(error)}
    entry: Any = {"index": index}
    for key, name in CALLS.items():
        entry[key] = call(named(name), handle)
    for key, function in STRUCTURES.items():
        entry[key] = structured(function, handle)
    entry["memory_affinity"] = call(named("nvmlDeviceGetMemoryAffinity"), handle, 2, 0)
    entry["nvlinks"] = links(handle)
    entry["processes"] = processes(handle)
    if entry["mig"] and isinstance(entry["mig"], list) and entry["mig"][0]:
        entry["mig_devices"] = mig_devices(handle)
    return handle, entry


def dump() -> Any:
    """The whole host as NVML sees it."""
    try:
        pynvml.nvmlInit()
    except Exception as error:
        return {"init": failed(error)}
    count = call(named("nvmlDeviceGetCount"))
    found = [device(index) for index in range(count if isinstance(count, int) else 0)]
    pairs: Any = []
    for a, (first, _) in enumerate(found):
        for b, (second, _) in enumerate(found):
            if a < b and first is not None and second is not None:
                pairs.append(
                    {
                        "a": a,
                        "b": b,
                        "ancestor": call(named("nvmlDeviceGetTopologyCommonAncestor"), first, second),
                        "peer_read": call(named("nvmlDeviceGetP2PStatus"), first, second, 0),
                        "peer_write": call(named("nvmlDeviceGetP2PStatus"), first, second, 1),
                        "peer_nvlink": call(named("nvmlDeviceGetP2PStatus"), first, second, 2),
                    }
                )
    result = {
        "driver_version": call(named("nvmlSystemGetDriverVersion")),
        "nvml_version": call(named("nvmlSystemGetNVMLVersion")),
        "cuda_version": call(named("nvmlSystemGetCudaDriverVersion_v2")),
        "count": count,
        "devices": [entry for _, entry in found],
        "pairs": pairs,
    }
    pynvml.nvmlShutdown()
    return result


def acs() -> "str | None":
    """Whether a bridge above an NVIDIA card redirects requests (PCI Express Base, 7.7.11: ACS control, bit 2).

    The capability lies in the extended configuration space, which only root may read: None without it.
    """
    redirecting = readable = False
    bridges: Any = set()
    for path in glob.glob("/sys/bus/pci/devices/*"):
        try:
            with open(path + "/vendor") as vendor, open(path + "/class") as kind:
                if vendor.read().strip() != "0x10de" or not kind.read().startswith(("0x0300", "0x0302")):
                    continue
        except OSError:
            continue
        parent = os.path.dirname(os.path.realpath(path))
        while os.path.exists(parent + "/config"):
            bridges.add(parent)
            parent = os.path.dirname(parent)
    for bridge in bridges:
        try:
            with open(bridge + "/config", "rb") as file:
                space = file.read(4096)
        except OSError:
            continue
        offset, steps = 0x100, 0
        if len(space) < 4096:
            continue
        readable = True
        while offset >= 0x100 and offset + 8 <= 4096 and steps < 64:
            head = int.from_bytes(space[offset : offset + 4], "little")
            if head & 0xFFFF == 0x000D:
                redirecting |= bool(int.from_bytes(space[offset + 6 : offset + 8], "little") & 0x4)
            offset, steps = head >> 20, steps + 1
    return ("on" if redirecting else "off") if readable else None


try:
    import pynvml  # type: ignore[import-untyped]
except ImportError:
    pynvml = None
if pynvml is not None:
    json.dump(dump(), sys.stdout)
state = acs()
if state is not None:
    sys.stdout.write("\n@@@qwenlab acs 0\n" + state)

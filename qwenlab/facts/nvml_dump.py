"""What NVML answered on the target, as `gather_nvml.py` dumped it: every call's value, or its error by name."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

from qwenlab.facts.readings import (
    EXCLUSIVE,
    FABRIC_FAILED,
    PROHIBITED,
    CardReading,
    Failure,
    MigReading,
    PairReading,
    ParseError,
    Reading,
)
from qwenlab.pci_address import bus_id

# nvml.h: nvmlDeviceArchitecture_t, nvmlGpuTopologyLevel_t, nvmlGpuP2PStatus_t, nvmlNvlinkVersion_t.
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
}
_ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_PEER_CODES = {0: "OK", 1: "CNS", 2: "GNS", 3: "TNS", 4: "DR", 5: "NS", 6: "U"}
_LINK_GENERATIONS = {1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 6: 4, 7: 5}
_FABRIC_STATES = {1: "Not Started", 2: "In Progress", 3: "Completed"}
_COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: PROHIBITED, 3: EXCLUSIVE}
_REMOTE_SWITCH = 2
_FAULTS = {
    "GpuIsLost": "GPU is lost",
    "ResetRequired": "GPU requires reset",
    "Unknown": "Unknown Error",
    "IrqIssue": "interrupt problem",
    "InsufficientPower": "insufficiently powered, check its power cables",
}
_FAILURES = {
    "LibRmVersionMismatch": "driver_library_mismatch",
    "DriverNotLoaded": "module_not_loaded",
    "LibraryNotFound": "nvml_missing",
    "NoPermission": "no_permission",
    "OperatingSystem": "gpu_access_blocked",
    "Timeout": "probe_timeout",
}
_MIB = 1 << 20


def parse_nvml(text: str) -> Reading:
    """Read the dump. Raises `ParseError` when it is not one."""
    try:
        dump = json.loads(text)
    except ValueError as error:
        raise ParseError(f"NVML dump: {error}") from None
    if not isinstance(dump, dict):
        raise ParseError("NVML dump: not an object")
    try:
        return _reading(dump)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise ParseError(f"NVML dump: {type(error).__name__} {error}") from None


def _reading(dump: dict[str, Any]) -> Reading:
    if failed := _error(dump.get("init")):
        return Reading(failure=Failure(_FAILURES.get(failed, "nvml_failed"), f"NVML: {failed}"))
    devices = dump["devices"]
    count = _value(dump.get("count"))
    damage = [] if count == len(devices) else [f"NVML counts {count} cards and describes {len(devices)}"]
    cuda = _value(dump.get("cuda_version"))
    cards = tuple(_card(device) for device in devices)
    return Reading(
        cards=cards,
        pairs=tuple(_pair(entry, devices) for entry in dump.get("pairs", ()))
        or tuple(_pair({"a": a, "b": b}, devices) for a, b in combinations(range(len(devices)), 2)),
        driver=_text(dump.get("driver_version")),
        library=_text(dump.get("nvml_version")),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else None,
        damage=tuple(damage),
    )


def _card(device: dict[str, Any]) -> CardReading:
    memory = _mapping(device.get("memory"))
    bar1 = _mapping(device.get("bar1"))
    pci = _mapping(device.get("pci"))
    power_range = _value(device.get("power_range"))
    capability = _value(device.get("compute_capability"))
    mig = _value(device.get("mig"))
    ecc = _value(device.get("ecc"))
    faults = [_FAULTS[name] for value in device.values() if (name := _error(value)) in _FAULTS and name]
    device_id = pci.get("device")
    return CardReading(
        index=int(device["index"]),
        uuid=_text(device.get("uuid")),
        bus_id=bus_id(_text(pci.get("bus_id"))),
        name=_text(device.get("name")),
        device_id=f"{device_id >> 16:04x}" if isinstance(device_id, int) else None,
        architecture=_ARCHITECTURES.get(_value(device.get("architecture"))),
        compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
        memory_total_mib=_mib(memory.get("total")),
        memory_used_mib=_mib(memory.get("used")),
        memory_reserved_mib=_mib(memory.get("reserved")),
        memory_unified=True if _error(device.get("memory")) == "NotSupported" else None,
        bar1_total_mib=_mib(bar1.get("total")),
        bar1_used_mib=_mib(bar1.get("used")),
        display_active=_flag(device.get("display_active")),
        display_attached=_flag(device.get("display_attached")),
        ecc_enabled=bool(ecc[0]) if ecc else None,
        mig_enabled=bool(mig[0]) if mig else None,
        compute_mode=_COMPUTE_MODES.get(_value(device.get("compute_mode"))),
        mig_instances=tuple(
            MigReading(_profile(_text(item.get("name"))), _text(item.get("uuid")), _mib(_value(item.get("memory"))))
            for item in device.get("mig_devices") or ()
        ),
        generation_now=_whole(device.get("generation_now")),
        generation_max=_whole(device.get("generation_device_max")) or _whole(device.get("generation_max")),
        width_now=_whole(device.get("width_now")),
        width_max=_whole(device.get("width_max")),
        limit_w=_watts(device.get("power_limit")),
        default_w=_watts(device.get("power_default")),
        min_w=power_range[0] / 1000 if power_range else None,
        max_w=power_range[1] / 1000 if power_range else None,
        persistence=_flag(device.get("persistence")),
        numa_node=_numa(_value(device.get("memory_affinity"))),
        replays=_whole(device.get("replays")),
        processes=_whole(device.get("processes")),
        fabric=_fabric(_mapping(device.get("fabric"))),
        fault=faults[0] if faults else None,
    )


def _fabric(info: dict[str, Any]) -> str | None:
    state = _FABRIC_STATES.get(info.get("state", 0))
    return FABRIC_FAILED if state == "Completed" and info.get("status", 0) != 0 else state


def _pair(entry: dict[str, Any], devices: list[dict[str, Any]]) -> PairReading:
    a, b = sorted((int(entry["a"]), int(entry["b"])))
    links_a, links_b = _links(devices[a]), _links(devices[b])
    bus_b = bus_id(_text(_mapping(devices[b].get("pci")).get("bus_id")))
    direct = [link for link in links_a if bus_b and bus_id(_text(link.get("remote_bus"))) == bus_b]
    switched = [link for link in links_a if _value(link.get("remote_type")) == _REMOTE_SWITCH]
    partners = [link for link in links_b if _value(link.get("remote_type")) == _REMOTE_SWITCH]
    used = direct or (switched if partners else [])
    lanes = len(direct) or min(len(switched), len(partners))
    versions = {_LINK_GENERATIONS.get(_value(link.get("version"))) for link in used} - {None}
    known = isinstance(devices[a].get("nvlinks"), list) and isinstance(devices[b].get("nvlinks"), list)
    return PairReading(
        a=a,
        b=b,
        lanes=lanes if known else None,
        link_generation=max(version for version in versions if version) if versions else None,
        nvswitch=bool(used) and not direct if known else None,
        ancestor=_ANCESTORS.get(_value(entry.get("ancestor"))),
        peer_read=_PEER_CODES.get(_value(entry.get("peer_read"))),
        peer_write=_PEER_CODES.get(_value(entry.get("peer_write"))),
    )


def _links(device: dict[str, Any]) -> list[dict[str, Any]]:
    return [link for link in device.get("nvlinks") or () if _value(link.get("state")) == 1]


def _error(value: Any) -> str | None:
    """The NVML error of a failed call, "NotSupported" from nvidia-ml-py's class name "NVMLError_NotSupported"."""
    return str(value["error"]).removeprefix("NVMLError_") if isinstance(value, dict) and "error" in value else None


def _value(value: Any) -> Any:
    return None if _error(value) else value


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) and "error" not in value else {}


def _text(value: Any) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None


def _whole(value: Any) -> int | None:
    value = _value(value)
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 1 << 32 else None


def _flag(value: Any) -> bool | None:
    value = _value(value)
    return bool(value) if isinstance(value, (bool, int)) else None


def _mib(value: Any) -> int | None:
    return value // _MIB if isinstance(value, int) and value >= 0 else None


def _watts(value: Any) -> float | None:
    value = _value(value)
    return value / 1000 if isinstance(value, (int, float)) else None


def _profile(name: str | None) -> str:
    """`1g.6gb` from "NVIDIA A30 MIG 1g.6gb"."""
    match = re.search(r"MIG (\S+)", name or "")
    return match.group(1) if match else (name or "")


def _numa(mask: Any) -> int | None:
    """The one NUMA node of a node-set bit mask (64-bit words); None when the mask names none or several."""
    if not isinstance(mask, list):
        return None
    nodes = [64 * word + bit for word, bits in enumerate(mask) for bit in range(64) if int(bits) >> bit & 1]
    return nodes[0] if len(nodes) == 1 else None

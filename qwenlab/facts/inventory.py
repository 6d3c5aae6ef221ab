"""A recording becomes a `HostInventory`: the one entry into this package for everybody else."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from qwenlab.facts import driver_text, host_text, sources
from qwenlab.facts.diagnoses import Findings, diagnose
from qwenlab.facts.merge import Merge, Merged, MergedPair
from qwenlab.facts.published import given_cards
from qwenlab.facts.readings import FABRIC_FAILED, NVSWITCH_BOARD, ParseError
from qwenlab.facts.recording import Recording
from qwenlab.facts.sources import Sources
from qwenlab.facts.usability import Objection, Situation, objection, torch_cuda
from qwenlab.host_inventory import (
    Ancestor,
    Driver,
    Gpu,
    GpuPair,
    HostInventory,
    MigInstance,
    ParseState,
    PcieLink,
    PowerLimit,
    Source,
)

_RENAMED = {
    "bus_id": "pci_bus_id",
    "device_id": "pci_device_id",
    **{name: f"pcie.{name}" for name in ("generation_now", "generation_max", "generation_slot", "replays")},
    **{name: f"pcie.{name}" for name in ("width_now", "width_max", "width_slot")},
    **{name: f"power.{name}" for name in ("limit_w", "default_w", "min_w", "max_w")},
}


def build_inventory(recording: Recording) -> HostInventory:
    """Everything that the recording tells. Never raises: what could not be read is a diagnosis."""
    read = sources.read(recording)
    merge = _merged(read, recording)
    driver = driver_text.driver(
        recording.captures,
        library=next((reading.library for reading in read.driver_readings if reading.library), None),
        cuda=next((reading.cuda for reading in read.driver_readings if reading.cuda), None),
    )
    given = [item for item in (recording.given.get("driver"),) if item]
    if driver.loaded is None:
        named = next((reading.driver for reading in read.driver_readings if reading.driver), None)
        driver = driver.model_copy(
            update={"loaded": named or driver_text.plain_version(str(given[0]) if given else None)}
        )
    if any(card.kernel_driver == "nouveau" for card in merge.cards):  # built into the kernel it is in no module list
        driver = driver.model_copy(update={"nouveau_loaded": True})
    failure = _driver_failure(read, driver, merge.cards)
    situation = Situation(
        driver_failure=failure,
        torch_cuda=torch_cuda(str(recording.given.get("cuda", ""))),
        largest_mib=max((card.memory_total_mib or 0 for card in merge.cards), default=0),
        unrouted_nvswitch=_unrouted_nvswitch(merge),
        uvm_failed="uvm_failed" in read.kernel.conditions,
    )
    objections = [objection(card, situation) for card in merge.cards]
    numbers = {id(card): index for index, card in enumerate(merge.cards)}
    host = HostInventory(
        **_host(recording),
        driver=driver,
        iommu_translates=_iommu_translates(read),
        fabric_manager=_fabric_manager(recording, read, situation),
        gpus=tuple(
            _gpu(index, card, why) for index, (card, why) in enumerate(zip(merge.cards, objections, strict=True))
        ),
        pairs=tuple(
            sorted(
                (_pair(numbers[a], numbers[b], pair) for (a, b), pair in merge.pairs.items()),
                key=lambda pair: (pair.a, pair.b),
            )
        ),
        nic_columns=read.topology.nics if read.topology else (),
        topology_gpus=len(read.topology.gpus) if read.topology else None,
        provenance=_host_provenance(read),
    )
    findings = Findings(
        host=host, sources=read, recording=recording, cards=merge.cards, objections=objections,
        conflicts=merge.conflicts, driver_failure=failure,
    )  # fmt: skip
    diagnoses = diagnose(findings)
    return host.model_copy(
        update={"parse": _state(findings), "diagnoses": diagnoses, "fingerprint": _fingerprint(host)}
    )


def _merged(read: Sources, recording: Recording) -> Merge:
    merge = Merge()
    if read.nvml:
        merge.add_driver_view(Source.NVML, read.nvml)
    for reading in read.smi:
        merge.add_driver_view(Source.NVIDIA_SMI, reading)
    try:
        given = given_cards(recording.given)
    except ParseError as error:
        read.unreadable["gpus"] = str(error)
    else:
        merge.add_given_view(given)
    driver_listed = bool(merge.cards)
    gone = read.kernel.undriven
    if read.procfs and read.procfs.cards:
        merge.add_bus_view(Source.PROCFS, read.procfs, driver_listed, gone)
    for bus in (read.bus.reading if read.bus else None, read.lspci):
        if bus:
            merge.add_bus_view(Source.SYSFS, bus, driver_listed, gone)
    if read.topology:
        merge.add_topology(read.topology)
    merge.add_peers(read.peers_read, read.peers_write)
    for card in merge.cards:
        address = card.bus_id or ""
        card.xids = read.kernel.xids.get(address, ())
        if address in read.kernel.fallen and "fallen off the bus" not in card.faults:
            card.faults.append("fallen off the bus")
        if address in read.kernel.reset_due:
            card.faults.append("the driver says that it needs a reset")
    merge.fill_from_device_table()
    merge.sort()
    return merge


def _driver_failure(read: Sources, driver: Driver, cards: list[Merged]) -> str | None:
    """The code of a driver that answers nothing. A host without any driver yet is no failure: it can be planned."""
    failure = read.failure
    if failure is None:  # nobody asked the driver, and the kernel log has its answer to somebody who did
        return "driver_library_mismatch" if not cards and read.kernel.mismatch else None
    untouched = driver.loaded is None and driver.installed is None and not driver.packages
    if failure.code == "nvml_missing" and untouched and cards:
        return None
    # Newer nvidia-smi says of a mismatch only that it reaches no driver; the kernel log of the same moment names it.
    if failure.code == "module_not_loaded" and read.kernel.mismatch and driver.nouveau_loaded is not True:
        return "driver_library_mismatch"
    return failure.code


def _unrouted_nvswitch(merge: Merge) -> bool:
    """NVSwitch boards, several of them, whose relations are all known to be plain PCIe without granted peer access.

    Two SXM2 modules on PCIe adapters look alike but need no switch and have peer access. Where the driver reports the
    fabric's own state, "In Progress" and "Not Started" say the same: nobody set up the routes yet.
    """
    if any(card.fabric in ("In Progress", "Not Started", FABRIC_FAILED) for card in merge.cards):
        return True
    boards = [card for card in merge.cards if NVSWITCH_BOARD.search(str(card.name or ""))]
    if len(boards) < 2 or len(boards) != len(merge.cards) or not merge.pairs:
        return False
    pairs = merge.pairs.values()
    return all(pair.values.get("lanes") == 0 and pair.values.get("peer_read") != "OK" for pair in pairs)


def _state(findings: Findings) -> ParseState:
    host, read = findings.host, findings.sources
    broken = {"gpu_fault", "gpu_xid", "fabricmanager_not_running", "uvm_failed"}
    codes = {item.code for item in findings.objections if item}
    if findings.driver_failure or (not host.gpus and read.unreadable):
        return ParseState.ERROR
    damaged = any(reading.damage for reading in read.driver_readings) or (read.topology and read.topology.damage)
    if damaged or read.unreadable or read.timed_out or codes & broken or _without_driver(findings):
        return ParseState.DEGRADED
    return ParseState.OK


def _without_driver(findings: Findings) -> bool:
    seen = {source for card in findings.cards for source in card.sources}
    return bool(findings.cards) and seen <= {Source.SYSFS, Source.PROCFS}


def _gpu(index: int, card: Merged, why: Objection | None) -> Gpu:
    def take(*names: str) -> dict[str, object]:
        return {name: card.values[name] for name in names if card.values.get(name) is not None}

    values = take(
        "uuid", "name", "architecture", "compute_capability", "memory_total_mib", "memory_used_mib",
        "memory_reserved_mib", "memory_unified", "bar1_total_mib", "bar1_used_mib", "processes", "display_active",
        "display_attached", "ecc_enabled", "mig_enabled", "persistence", "numa_node",
    )  # fmt: skip
    return Gpu.model_validate(
        {
            **values,
            "index": index,
            "pci_bus_id": card.bus_id,
            "pci_device_id": card.device_id,
            "mig_instances": tuple(
                MigInstance(uuid=item.uuid, profile=item.profile, memory_mib=item.memory_mib) for item in card.mig
            ),
            "pcie": PcieLink.model_validate(
                take(
                    "generation_now", "generation_max", "generation_slot", "width_now", "width_max", "width_slot",
                    "replays",
                )
            ),
            "power": PowerLimit.model_validate(take("limit_w", "default_w", "min_w", "max_w")),
            "cpu_affinity": card.cpu_affinity,
            "numa_affinity": card.numa_affinity,
            "xid": card.xids,
            "usable": why is None,
            "unusable_because": why.text if why else None,
            "provenance": {_RENAMED.get(name, name): source for name, source in card.provenance.items()},
        }
    )  # fmt: skip


def _pair(a: int, b: int, pair: MergedPair) -> GpuPair:
    read, write = pair.values.get("peer_read"), pair.values.get("peer_write")
    refusals = [code for code in (read, write) if code not in (None, "OK")]
    names = {
        "lanes": "nvlink_lanes",
        "link_generation": "nvlink_generation",
        "ancestor": "ancestor",
        "nvswitch": "nvswitch",
        "peer_read": "peer_read",
        "peer_write": "peer_write",
    }
    return GpuPair(
        a=min(a, b),
        b=max(a, b),
        nvlink_lanes=pair.values.get("lanes") or 0,
        nvlink_generation=pair.values.get("link_generation"),
        nvswitch=bool(pair.values.get("nvswitch")),
        ancestor=Ancestor(pair.values["ancestor"]) if pair.values.get("ancestor") else None,
        peer_read=_granted(read),
        peer_write=_granted(write),
        peer_refusal=refusals[0] if refusals else None,
        provenance={names[name]: source for name, source in pair.provenance.items()},
    )


def _granted(code: str | None) -> bool | None:
    return None if code in (None, "U") else code == "OK"


def _host(recording: Recording) -> dict[str, Any]:
    captures = recording.captures
    system = host_text.operating_system(captures.get("os_release"), captures.get("uname"))
    total, available = host_text.memory_gib(captures.get("meminfo"))
    disks, shm = host_text.disks(captures.get("df"), captures.get("mounts"))
    model, vendor, count = host_text.cpu(captures.get("cpuinfo"))
    given_os = str(recording.given.get("os") or "")
    if given_os and system.kernel is None:
        kernel = re.search(r"kernel ([0-9][0-9A-Za-z.\-]*[0-9A-Za-z])", given_os)
        system = system.model_copy(update={"pretty_name": given_os, "kernel": kernel.group(1) if kernel else None})
    wsl = "microsoft" in (system.kernel or "").lower() or "/dev/dxg" in captures.get("devices", "")
    virt = (captures.get("virtualisation") or "").strip().splitlines()
    return {
        "hostname": (captures.get("hostname") or "").strip() or None,
        "os": system,
        "cpu_model": model,
        "cpu_vendor": vendor,
        "cpu_count": count,
        "numa_nodes": host_text.numa_nodes(captures.get("numa")),
        "ram_total_gib": total,
        "ram_available_gib": available,
        "shm_total_gib": shm,
        "disks": disks,
        "virtualisation": virt[0] if virt else None,
        "wsl2": wsl or re.search(r"\bWSL ?2?\b|microsoft-standard", given_os, re.IGNORECASE) is not None,
        "secure_boot": host_text.secure_boot(captures.get("secure_boot")),
        "iommu_enabled": host_text.iommu_enabled(captures.get("iommu")),
        "acs_redirects": {"on": True, "off": False}.get((captures.get("acs") or "").strip()),
        "cuda_toolkits": host_text.toolkits(captures.get("toolkits")),
        "nvcc": host_text.nvcc_release(captures.get("nvcc")),
        "glibc": host_text.glibc(captures.get("glibc")),
        "bios": " ".join((captures.get("bios") or "").split()) or None,
        "boot_id": (captures.get("boot_id") or "").strip() or None,
    }


def _fabric_manager(recording: Recording, read: Sources, situation: Situation) -> str | None:
    services = dict(re.findall(r"^(\S+) (\S+)$", recording.captures.get("services", ""), re.MULTILINE))
    state = services.get("nvidia-fabricmanager")
    switched = bool(read.bus and read.bus.nvswitches) or situation.unrouted_nvswitch
    if not switched and state in (None, "absent"):
        return None
    return {"active": "running", "absent": "absent", None: None}.get(state, "stopped")


def _iommu_translates(read: Sources) -> bool | None:
    domains = read.bus.iommu_domains if read.bus else frozenset()
    return any(domain != "identity" for domain in domains) if domains else None


def _host_provenance(read: Sources) -> dict[str, Source]:
    order = [(Source.NVML, read.nvml)] + [(Source.NVIDIA_SMI, reading) for reading in read.smi]
    found: dict[str, Source] = {}
    for name in ("driver", "cuda"):
        source = next((source for source, reading in order if reading and getattr(reading, name)), None)
        if source:
            found[name if name == "driver" else "driver.cuda"] = source
    return found


def _fingerprint(host: HostInventory) -> str:
    """Twelve hex digits over what a measured verdict depends on: cards and slots, BIOS, kernel, driver, IOMMU."""
    parts = [
        *(f"{gpu.uuid}@{gpu.pci_bus_id}x{gpu.pcie.width_max}" for gpu in host.gpus),
        str(host.bios), str(host.os.kernel), str(host.driver.loaded), str(host.iommu_enabled),
        *(["translated"] if host.iommu_translates else []),
    ]  # fmt: skip
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]

"""From an inventory to the `key=value` lines that libnvidia-ml.so.1 and nvidia-smi read.

Keys: `host.<key>`, `gpu.<n>.<nvidia-smi query field>`, `gpu.<n>.nvlink.<link>.<key>`, `pair.<a>.<b>.<key>`. A field
that is absent is N/A (NVML_ERROR_NOT_SUPPORTED). Units as in nvidia-smi: MiB, W, MHz, C.
"""

from __future__ import annotations

import re
import zlib

from tests.sim.inventory import SimGpu, SimHost

NVSWITCH_BUS_ID = "FFFFFFFF:FF:FF.0"  # what NVML reports for a link that ends in a switch
REMOTE_GPU, REMOTE_SWITCH = 0, 2
NVLINK_MBPS = {2: 25781, 3: 25781, 4: 26562, 6: 26562, 7: 53125}  # per lane and direction, by NVML's version code


def compile_inventory(host: SimHost) -> str:
    """The whole file, one line a key, sorted as built."""
    lines = _host_lines(host)
    for index, gpu in enumerate(host.gpus):
        lines |= {f"gpu.{index}.{key}": value for key, value in _gpu_fields(host, index, gpu).items()}
        lines |= {f"gpu.{index}.nvlink.{key}": value for key, value in _links(host, index).items()}
    for a in range(len(host.gpus)):
        for b in range(a + 1, len(host.gpus)):
            lines |= {f"pair.{a}.{b}.{key}": value for key, value in _pair_fields(host, a, b).items()}
    if bad := [key for key, value in lines.items() if "\n" in value]:
        raise ValueError(f"{host.name}: a value must be one line: {bad[0]}")
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def nvml_bus_id(bus: str) -> str:
    """0000:0a:00.0 as NVML writes it: 00000000:0A:00.0."""
    domain, rest = bus.split(":", 1)
    return f"{int(domain, 16):08X}:{rest.upper()}"


def _host_lines(host: SimHost) -> dict[str, str]:
    major, minor = host.cuda.split(".")
    lines = {
        "host.name": host.name,
        "host.driver_version": host.driver,
        "host.library_version": host.driver,
        "host.module": host.module,
        "host.cuda": host.cuda,
        "host.cuda_version": str(int(major) * 1000 + int(minor) * 10),
        "host.wsl2": "1" if host.wsl2 else "0",
        "host.nic.count": str(len(host.nics)),
        "gpu.count": str(len(host.gpus)),
    }
    for place, nic in enumerate(host.nics):
        lines[f"host.nic.{place}.name"] = nic.name
        lines |= {f"host.nic.{place}.gpu.{gpu}": label for gpu, label in nic.near.items()}
    return lines


def _gpu_fields(host: SimHost, index: int, gpu: SimGpu) -> dict[str, str]:
    parts: list[dict[str, str | None]] = [
        _identity(host, index, gpu),
        _pcie(gpu),
        _memory(gpu),
        _modes(host, gpu),
        _sensors(gpu),
        _driver_support(gpu),
        dict(gpu.fields),
    ]
    merged = {key: value for part in parts for key, value in part.items()}
    return {key: value for key, value in merged.items() if value is not None}


def _identity(host: SimHost, index: int, gpu: SimGpu) -> dict[str, str | None]:
    model = gpu.model
    domain, bus, rest = nvml_bus_id(gpu.bus).split(":")
    check = zlib.crc32(f"{host.name}/{index}".encode())
    return {
        "name": gpu.card,
        "uuid": host.uuid(index),
        "serial": f"16500{check % 10**8:08}" if model.brand != "GeForce" else None,
        "pdi": f"0x{check:08x}{check ^ 0x5A5A5A5A:08x}",
        "product_brand": model.brand,
        "product_architecture": model.arch,
        "compute_cap": model.cc,
        "pci.bus_id": f"{domain}:{bus}:{rest}",
        "pci.domain": domain[4:],
        "pci.bus": bus,
        "pci.device": rest.split(".")[0],
        "pci.device_id": f"0x{model.id}10DE",
        "pci.device_id.plain": f"{model.id}10DE",
        "pci.sub_device_id": "0x18BF10DE",
        "pci.sub_device_id.plain": "18BF10DE",
        "pci.baseClass": "3",
        "pci.subClass": str(model.subclass),
        "board_id": f"0x{(int(bus, 16) << 8 | int(rest.split('.')[0], 16)):x}",
        "vbios_version": "94.02.42.00.01",
        "multigpu_board": "No",
        "gsp_firmware_version": host.driver if host.module == "open" else None,
        "module_id": "1",
    }


def _pcie(gpu: SimGpu) -> dict[str, str | None]:
    model = gpu.model
    slot_gen, slot_width = gpu.slot_gen or model.pcie_gen, gpu.slot_width or model.pcie_width
    now = str(gpu.gen_now or 1)
    return {
        "pcie.link.gen.current": now,
        "pcie.link.gen.gpucurrent": now,
        "pcie.link.gen.max": str(min(model.pcie_gen, slot_gen)),
        "pcie.link.gen.gpumax": str(model.pcie_gen),
        "pcie.link.gen.hostmax": str(slot_gen),
        "pcie.link.width.current": str(gpu.width_now or min(model.pcie_width, slot_width)),
        "pcie.link.width.max": str(model.pcie_width),
        "pcie.replay_counter": "0",
        "pcie.tx": "0",
        "pcie.rx": "0",
    }


def _memory(gpu: SimGpu) -> dict[str, str | None]:
    model = gpu.model
    fields: dict[str, str | None] = {
        "memory.total": f"{model.mib:g}",
        "memory.reserved": f"{model.reserved_mib:g}",
        "memory.used": f"{gpu.used_mib:g}",
        "bar1.total": str(model.bar1_mib),
        "bar1.used": "1",
        "bar1.free": str(model.bar1_mib - 1),
        "processes": ";".join(process.line() for process in gpu.processes) or None,
    }
    if model.arch in ("Hopper", "Blackwell"):
        fields |= {"cc.total": "0", "cc.used": "0", "cc.free": "0"}
    return fields


def _modes(host: SimHost, gpu: SimGpu) -> dict[str, str | None]:
    model = gpu.model
    ecc = model.ecc if gpu.ecc is None else gpu.ecc
    fields: dict[str, str | None] = {
        "persistence_mode": _enabled(gpu.persistence),
        "display_active": _enabled(gpu.display),
        "display_attached": "Yes" if gpu.display else "No",
        "addressing_mode": "None",
        "compute_mode": "Default",
        "numa_affinity": None if gpu.numa is None else str(gpu.numa),
        "cpu_affinity": host.numa_cpus.get(0 if gpu.numa is None else gpu.numa),
        "c2c.mode": "Disabled" if model.arch == "Hopper" else None,
        "egm": "disabled",
        "virtualization_mode": "None",
    }
    if ecc is not None:
        fields |= {"ecc.mode.current": _enabled(ecc), "ecc.mode.pending": _enabled(ecc)}
    if ecc:
        kinds = ("uncorrected", "corrected")
        fields |= {f"ecc.errors.{kind}.{span}.total": "0" for kind in kinds for span in ("volatile", "aggregate")}
        fields |= {"ecc.count": "0", "ecc.no": "No", "inforom.ecc": "7.16"}
        fields |= {"remapped_rows.count": "0", "remapped_rows.no": "No", "remapped_rows.max": "640"}
    if model.mig:
        mode = _enabled(gpu.mig_enabled or bool(gpu.mig))
        fields |= {"mig.mode.current": mode, "mig.mode.pending": mode, "mig.max_devices": "7"}
    for place, piece in enumerate(gpu.mig):
        fields |= {
            f"mig.{place}.profile": piece.profile,
            f"mig.{place}.uuid": f"MIG-{gpu.bus}-{place}",
            f"mig.{place}.memory.total": f"{piece.mib:g}",
            f"mig.{place}.memory.used": f"{piece.used_mib:g}",
            f"mig.{place}.gpu_instance": str(piece.gpu_instance),
            f"mig.{place}.slices": re.sub(r"\D.*", "", piece.profile),
        }
    if host.nvswitch and model.arch in ("Hopper", "Blackwell"):
        fields |= {
            "fabric.state": "Completed" if host.fabric_manager else "In Progress",
            "fabric.status": "Success" if host.fabric_manager else None,
            "fabric.clique": "0" if host.fabric_manager else None,
            "fabric.cluster_uuid": "00000000-0000-0000-0000-000000000000" if host.fabric_manager else None,
        }
    return fields


def _sensors(gpu: SimGpu) -> dict[str, str | None]:
    model = gpu.model
    default, least, most = model.power
    graphics, sm, memory = model.clocks
    return {
        "fan.speed": "30" if model.fan else None,
        "pstate": "P8" if model.fan else "P0",
        "temperature.gpu": "33",
        "temperature.memory": None if model.fan else "33",
        "utilization.gpu": "0",
        "utilization.memory": "0",
        "utilization.encoder": "0",
        "utilization.decoder": "0",
        "utilization.jpeg": "0",
        "utilization.ofa": "0",
        "power.draw": f"{model.idle_w:g}",
        "power.draw.average": f"{model.idle_w:g}",
        "power.draw.instant": f"{model.idle_w:g}",
        "power.limit": f"{gpu.power_limit_w or default:g}",
        "power.default_limit": f"{default:g}",
        "power.min_limit": f"{least:g}",
        "power.max_limit": f"{most:g}",
        "clocks.current.gr": "345",
        "clocks.current.sm": "345",
        "clocks.current.mem": "405",
        "clocks.current.video": "765",
        "clocks.max.gr": str(graphics),
        "clocks.max.sm": str(sm),
        "clocks.max.mem": str(memory),
        "clocks.max.video": "1545",
    }


def _driver_support(gpu: SimGpu) -> dict[str, str | None]:
    model = gpu.model
    return {
        "module": model.module,
        "first_branch": str(model.first_branch) if model.first_branch else None,
        "last_branch": str(model.last_branch) if model.last_branch else None,
        "nvlink.count": str(model.links) if model.links else None,
        "nvlink.speed_mbps": str(NVLINK_MBPS[model.nvlink]) if model.links else None,
    }


def _links(host: SimHost, index: int) -> dict[str, str]:
    """Links numbered from 0: those to each peer in turn, or all to the switch; the rest of the card's are inactive."""
    model = host.gpus[index].model
    ends: list[tuple[str, int]] = []
    if host.nvswitch and host.fabric_manager:
        ends = [(NVSWITCH_BUS_ID, REMOTE_SWITCH)] * model.links
    else:
        for other, gpu in enumerate(host.gpus):
            if other != index:
                ends += [(nvml_bus_id(gpu.bus), REMOTE_GPU)] * host.pair(index, other).nvlink
    lines: dict[str, str] = {}
    for link in range(max(model.links, len(ends))):
        active = link < len(ends)
        lines[f"{link}.state"] = "1" if active else "0"
        lines[f"{link}.version"] = str(model.nvlink)
        if active:
            lines[f"{link}.remote"], kind = ends[link]
            lines[f"{link}.remote_type"] = str(kind)
    return lines


def _pair_fields(host: SimHost, a: int, b: int) -> dict[str, str]:
    pair = host.pair(a, b)
    status = pair.peer or "NS"
    over_nvlink = "OK" if pair.nvlink else "NS"
    return {
        "ancestor": str(pair.ancestor),
        "nvlink": str(pair.nvlink),
        "p2p.read": status,
        "p2p.write": status,
        "p2p.nvlink": over_nvlink,
        "p2p.atomics": over_nvlink,
        "p2p.prop": "NS" if pair.nvlink or status != "OK" else "OK",
    }


def _enabled(on: bool) -> str:
    return "Enabled" if on else "Disabled"

"""What the kernel shows of the cards: sysfs PCI devices below their bridges, the loaded module, /proc/driver/nvidia.

The tree has the kernel's shape: `sys/devices/pciDDDD:BB/<root port>/[<switch ports>/]<card>` with the links that lead
there from `sys/bus/pci/devices`, so that a reader that climbs from a card meets the bridges in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.sim.compiled import nvml_bus_id
from tests.sim.inventory import SimGpu, SimHost

GT_S = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe"}
NVIDIA, INTEL = "0x10de", "0x8086"
CLASS_BRIDGE, CLASS_NVSWITCH = "0x060400", "0x068000"
NVSWITCHES = ("22a3", "22a3", "22a3", "22a3")  # four NVSwitch 3 bridges of an HGX H100 board
OPEN_BANNER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs-builder)\n"
CLOSED_BANNER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Release Build\n"


@dataclass(frozen=True)
class Module:
    """The NVIDIA kernel module that is loaded."""

    version: str
    flavour: str  # open or proprietary

    def banner(self) -> str:
        """Content of /proc/driver/nvidia/version."""
        first = OPEN_BANNER if self.flavour == "open" else CLOSED_BANNER
        return first.format(version=self.version) + "GCC version:  gcc version 14.2.0 (Debian 14.2.0-19)\n"


def write_tree(root: Path, host: SimHost, module: Module | None, seen_as: Path | None = None) -> None:
    """Write `root/sys` and `root/proc` for a machine; without a module, nouveau holds the cards.

    Links into `sys/devices` are absolute below `seen_as` (default: `root`), since on a lab host only parts of the tree
    are mounted over the real one. A WSL2 machine shows no PCI cards and no /proc/driver/nvidia.
    """
    write_pci(root, host, "nvidia" if module else "nouveau", seen_as or root)
    if module and not host.wsl2:
        write_module(root, host, module)


def write_pci(root: Path, host: SimHost, driver: str, seen_as: Path) -> None:
    """The PCI part of the tree; `driver` is what is bound to the cards."""
    devices = root / "sys/bus/pci/devices"
    devices.mkdir(parents=True, exist_ok=True)
    (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    if host.wsl2:
        return
    for index, gpu in enumerate(host.gpus):
        place = _bridges(root, host, index) / gpu.bus
        _device(place, _card_files(host, gpu))
        (place / "driver").symlink_to(seen_as / "sys/bus/pci/drivers" / driver)
        (devices / gpu.bus).symlink_to(seen_as / place.relative_to(root))
    if host.nvswitch and host.nvswitch_in_sysfs:
        for number, device_id in enumerate(NVSWITCHES):
            bus = f"0000:f{number}:00.0"
            where = root / f"sys/devices/pci0000:f{number}" / bus
            _device(where, {"vendor": NVIDIA, "device": f"0x{device_id}", "class": CLASS_NVSWITCH, "numa_node": "-1"})
            (devices / bus).symlink_to(seen_as / where.relative_to(root))


def write_module(root: Path, host: SimHost, module: Module) -> None:
    """The loaded module's part: /sys/module/nvidia and /proc/driver/nvidia."""
    _files(root / "sys/module/nvidia", {"version": module.version, "refcnt": "0", "initstate": "live"})
    _files(root / "sys/module/nvidia_uvm", {"refcnt": "0", "initstate": "live"})
    proc = root / "proc/driver/nvidia"
    proc.mkdir(parents=True, exist_ok=True)
    (proc / "version").write_text(module.banner())
    (proc / "params").write_text('ResmanDebugLevel: 4294967295\nEnableResizableBar: 0\nRegistryDwords: ""\n')
    for index, gpu in enumerate(host.gpus):
        information = {
            "Model": gpu.card,
            "IRQ": str(120 + index),
            "GPU UUID": host.uuid(index),
            "Video BIOS": "94.02.42.00.01",
            "Bus Type": "PCIe",
            "DMA Size": "47 bits",
            "DMA Mask": "0x7fffffffffff",
            "Bus Location": gpu.bus,
            "Device Minor": str(index),
            "GPU Firmware": module.version if module.flavour == "open" else "N/A",
            "GPU Excluded": "No",
        }
        text = "".join(f"{key + ':':<17}{value}\n" for key, value in information.items())
        (proc / "gpus" / gpu.bus).mkdir(parents=True, exist_ok=True)
        (proc / "gpus" / gpu.bus / "information").write_text(text)
    if host.nvswitch and host.nvswitch_in_sysfs:
        (root / "proc/driver/nvidia-nvswitch/devices").mkdir(parents=True, exist_ok=True)


def _card_files(host: SimHost, gpu: SimGpu) -> dict[str, str]:
    model = gpu.model
    return {
        "vendor": NVIDIA,
        "device": f"0x{model.id.lower()}",
        "subsystem_vendor": NVIDIA,
        "subsystem_device": "0x18bf",
        "class": f"0x03{model.subclass:02x}00",
        "revision": "0xa1",
        "numa_node": "-1" if gpu.numa is None or len(host.numa_cpus) < 2 else str(gpu.numa),
        "local_cpulist": host.numa_cpus.get(gpu.numa or 0, ""),
        "current_link_speed": GT_S[gpu.gen_now or 1],
        "current_link_width": str(gpu.width_now or min(model.pcie_width, gpu.slot_width or model.pcie_width)),
        "max_link_speed": GT_S[model.pcie_gen],
        "max_link_width": str(model.pcie_width),
        "boot_vga": "1" if gpu.display else "0",
        "enable": "1",
    }


def _bridges(root: Path, host: SimHost, index: int) -> Path:
    """The directory that holds a card: host bridge, root port and, where cards share one, the switch ports."""
    gpu = host.gpus[index]
    beside = [i for i in range(len(host.gpus)) if i == index or host.pair(index, i).ancestor in ("PIX", "PXB", "PHB")]
    switch = [i for i in beside if i == index or host.pair(index, i).ancestor in ("PIX", "PXB")]
    domain = gpu.bus.split(":")[0]
    base = _bus(host.gpus[beside[0]]) & 0xE0
    bridge = root / f"sys/devices/pci{domain}:{base:02x}"
    port = switch[0] + 1
    speed = {"max_link_speed": GT_S[gpu.slot_gen or gpu.model.pcie_gen], "class": CLASS_BRIDGE, "vendor": INTEL}
    speed["max_link_width"] = str(gpu.slot_width or gpu.model.pcie_width)
    place = bridge / f"{domain}:{base:02x}:{port:02x}.0"
    chain = [place]
    if len(switch) > 1:
        chain.append(place / f"{domain}:{base + port:02x}:1e.0")
        chain.append(chain[-1] / f"{domain}:{base + port:02x}:1f.{switch.index(index)}")
    for directory in chain:
        _device(directory, {**speed, "device": "0x352a", "numa_node": "-1" if gpu.numa is None else str(gpu.numa)})
    return chain[-1]


def _bus(gpu: SimGpu) -> int:
    return int(nvml_bus_id(gpu.bus).split(":")[1], 16)


def _device(directory: Path, files: dict[str, str]) -> None:
    identity = f"{files['vendor'][2:].upper()}:{files['device'][2:].upper()}"
    _files(directory, {**files, "uevent": f"PCI_ID={identity}\nPCI_SLOT_NAME={directory.name}"})


def _files(directory: Path, files: dict[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(f"{text}\n")

"""What qwenlab knows about a host: the one value that the detector writes and the planner reads.

`HostInventory` serialises to JSON (`schema_version`) and lies beside the plan on the host. A field that could not be
learnt is None, never a guess; `provenance` says where each known field came from.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from qwenlab.measurement import Measurement
from qwenlab.record import Record

SCHEMA_VERSION = 1


class Source(StrEnum):
    """Where a value was read, most trusted first."""

    NVML = "nvml"
    NVIDIA_SMI = "nvidia-smi"
    PROCFS = "procfs"
    SYSFS = "sysfs"
    DEVICE_TABLE = "device-table"
    GIVEN = "given"


class ParseState(StrEnum):
    """How far the reading can be trusted: `ok`, `degraded` (some fields or cards unknown), `error` (no card usable)."""

    OK = "ok"
    DEGRADED = "degraded"
    ERROR = "error"


class Ancestor(StrEnum):
    """Nearest common ancestor of two cards in nvidia-smi's terms, nearest first."""

    PIX = "PIX"  # at most one PCIe switch
    PXB = "PXB"  # several switches, no host bridge
    PHB = "PHB"  # one PCIe host bridge
    NODE = "NODE"  # host bridges within one NUMA node
    SYS = "SYS"  # across the link between NUMA nodes


class Severity(StrEnum):
    """`error`: the card or host cannot serve; `warning`: it can, not as well; `info`: worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Diagnosis(Record):
    """One finding about the host, in words for its owner."""

    code: str = Field(description="stable name, e.g. 'driver_library_mismatch'")
    severity: Severity
    text: str = Field(description="what is wrong and what to do")
    gpu: str | None = Field(default=None, description="UUID or PCI bus id of the card it is about")


class PcieLink(Record):
    """PCIe generation and lane count: now (idle links drop to generation 1), the card's maximum, the slot path's."""

    generation_now: int | None = None
    generation_max: int | None = None
    generation_slot: int | None = None
    width_now: int | None = None
    width_max: int | None = None
    width_slot: int | None = None
    replays: int | None = Field(default=None, description="link errors that PCIe repaired by sending again, so far")


class PowerLimit(Record):
    """Board power limit in watts and the range that the card accepts."""

    limit_w: float | None = None
    default_w: float | None = None
    min_w: float | None = None
    max_w: float | None = None


class MigInstance(Record):
    """One MIG compute instance."""

    uuid: str | None = None
    profile: str
    memory_mib: int | None = None


class Gpu(Record):
    """One card. `index` is its place in PCI bus order (nvidia-smi's), never CUDA's default fastest-first order."""

    index: int
    uuid: str | None = None
    pci_bus_id: str | None = Field(
        default=None, description="domain:bus:device.function, lower case, e.g. 0000:01:00.0"
    )
    name: str | None = None
    pci_device_id: str | None = Field(default=None, description="four hex digits, lower case, e.g. '2204'")
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = Field(default=None, description="in use when read: a desktop, another program")
    memory_reserved_mib: int | None = Field(default=None, description="kept by the driver, never allocatable")
    memory_unified: bool = Field(default=False, description="shares the host's RAM; then the total may be unknown")
    bar1_total_mib: int | None = Field(default=None, description="window for peer access and CPU mappings")
    bar1_used_mib: int | None = None
    processes: int | None = Field(default=None, description="compute programs on the card when read")
    display_active: bool | None = None
    display_attached: bool | None = None
    ecc_enabled: bool | None = None
    mig_enabled: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    pcie: PcieLink = PcieLink()
    power: PowerLimit = PowerLimit()
    persistence: bool | None = None
    numa_node: int | None = None
    cpu_affinity: str | None = Field(
        default=None, description="as `nvidia-smi topo -m` prints it; '' where it is empty"
    )
    numa_affinity: str | None = Field(default=None, description="as `nvidia-smi topo -m` prints it: '0', 'N/A', '0-3'")
    xid: tuple[int, ...] = Field(default=(), description="Xid codes seen in the kernel log for this card")
    usable: bool = True
    unusable_because: str | None = None
    provenance: dict[str, Source] = Field(default_factory=dict)


class GpuPair(Record):
    """What lies between two cards, by `Gpu.index` (a < b)."""

    a: int
    b: int
    nvlink_lanes: int = 0
    nvlink_generation: int | None = None
    nvswitch: bool = False
    ancestor: Ancestor | None = None
    peer_read: bool | None = Field(default=None, description="driver grants peer access; None when nobody said")
    peer_write: bool | None = None
    peer_refusal: str | None = Field(default=None, description="nvidia-smi's code: CNS, GNS, TNS, NS, U ...")
    measured_peer_ok: bool | None = Field(default=None, description="result of the live, value-checked peer test")
    measured_gb_s: float | None = None
    provenance: dict[str, Source] = Field(default_factory=dict)

    def __hash__(self) -> int:
        """By what is known; the provenance is a mapping and stays out."""
        return hash((self.a, self.b, self.nvlink_lanes, self.nvswitch, self.ancestor, self.peer_read, self.peer_write))


class Disk(Record):
    """One mounted file system, sizes in GiB."""

    mount: str
    filesystem: str
    total_gib: float
    free_gib: float
    options: tuple[str, ...] = ()


class Driver(Record):
    """The NVIDIA kernel module and library; `loaded` against `installed` tells whether a reboot is due."""

    loaded: str | None = None
    installed: str | None = None
    library: str | None = None
    cuda: str | None = Field(default=None, description="highest CUDA version the driver supports")
    open_module: bool | None = None
    nouveau_loaded: bool | None = None
    module_files: tuple[str, ...] = Field(default=(), description="every nvidia.ko that the running kernel could load")
    packages: dict[str, str] = Field(default_factory=dict, description="installed driver packages and versions")
    held: tuple[str, ...] = Field(default=(), description="driver packages that apt holds back")
    runfile: bool | None = Field(
        default=None, description="installed by NVIDIA's .run file, outside the package system"
    )


class OperatingSystem(Record):
    """Distribution and kernel, as os-release and uname name them."""

    id: str | None = None
    version_id: str | None = None
    codename: str | None = None
    pretty_name: str | None = None
    kernel: str | None = None
    architecture: str | None = None


class HostInventory(Record):
    """Everything qwenlab believes about one host."""

    schema_version: Literal[1] = 1
    hostname: str | None = None
    os: OperatingSystem = OperatingSystem()
    cpu_model: str | None = None
    cpu_vendor: str | None = None
    cpu_count: int | None = None
    numa_nodes: int | None = None
    ram_total_gib: float | None = None
    ram_available_gib: float | None = None
    shm_total_gib: float | None = None
    disks: tuple[Disk, ...] = ()
    virtualisation: str | None = Field(default=None, description="systemd-detect-virt's word, 'none' on bare metal")
    wsl2: bool = False
    secure_boot: bool | None = None
    iommu_enabled: bool | None = None
    iommu_translates: bool | None = Field(
        default=None, description="the IOMMU translates a card's addresses; False with iommu=pt, None without groups"
    )
    acs_redirects: bool | None = Field(default=None, description="PCIe ACS sends peer traffic through the root complex")
    fabric_manager: str | None = Field(
        default=None, description="'running', 'stopped', 'absent'; None when no NVSwitch"
    )
    driver: Driver = Driver()
    cuda_toolkits: tuple[str, ...] = ()
    nvcc: str | None = None
    glibc: str | None = None
    bios: str | None = Field(default=None, description="board, BIOS version and date")
    boot_id: str | None = None
    fingerprint: str | None = Field(
        default=None,
        description="changes with cards, slots, BIOS, kernel, driver or IOMMU: measured verdicts expire",
    )
    gpus: tuple[Gpu, ...] = ()
    pairs: tuple[GpuPair, ...] = ()
    nic_columns: tuple[str, ...] = ()
    topology_gpus: int | None = Field(default=None, description="GPU columns of `nvidia-smi topo -m`")
    parse: ParseState = ParseState.OK
    diagnoses: tuple[Diagnosis, ...] = ()
    measurements: tuple[Measurement, ...] = Field(default=(), description="what plays/calibrate.py found on this host")
    provenance: dict[str, Source] = Field(default_factory=dict)

    @property
    def usable_gpus(self) -> tuple[Gpu, ...]:
        """The cards that a plan may use, in PCI bus order."""
        return tuple(gpu for gpu in self.gpus if gpu.usable)

    def pair(self, a: int, b: int) -> GpuPair | None:
        """What is known about the link between cards `a` and `b`, in either order."""
        low, high = sorted((a, b))
        return next((pair for pair in self.pairs if (pair.a, pair.b) == (low, high)), None)

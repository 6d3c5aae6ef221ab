"""The simulated machine as typed data: read from `inventories/*.yaml`, or built in a test."""

from __future__ import annotations

import uuid
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

HERE = Path(__file__).parent
Ancestor = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
PeerStatus = Literal["OK", "CNS", "GNS", "TNS", "DR", "NS", "U"]


class _Value(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Card(_Value):
    """One card model of cards.yaml; its header explains the keys."""

    id: str
    arch: str
    cc: str
    mib: float
    power: tuple[float, float, float]
    brand: str
    pcie_gen: int
    pcie_width: int
    bar1_mib: int
    reserved_mib: float
    links: int
    nvlink: int
    module: Literal["open", "proprietary", "either"]
    ecc: bool | None
    mig: bool
    subclass: int
    fan: bool
    clocks: tuple[int, int, int]
    idle_w: float
    first_branch: int | None = None
    last_branch: int | None = None


class Process(_Value):
    """A process that holds memory on a card. One whose pid lives on the host counts until it ends, unless `always`."""

    pid: int
    mib: float
    name: str = "python3"
    kind: Literal["C", "G"] = "C"
    always: bool = True

    def line(self) -> str:
        """Its form in the compiled inventory and in the faults file."""
        return f"{'!' if self.always else ''}{self.pid}:{self.kind}:{self.mib:g}:{self.name}"


class MigSlice(_Value):
    """One MIG instance of a card."""

    profile: str
    mib: float
    used_mib: float = 0
    gpu_instance: int = 1


class SimGpu(_Value):
    """One card in its slot. `fields` overrides any nvidia-smi query field, for recorded values that no rule gives."""

    card: str
    bus: str = Field(description="domain:bus:device.function, e.g. 0000:01:00.0")
    uuid: str | None = None
    numa: int | None = 0
    used_mib: float = 0
    display: bool = False
    persistence: bool = False
    ecc: bool | None = Field(default=None, description="None: the model's default")
    power_limit_w: float | None = None
    gen_now: int | None = Field(default=None, description="None: generation 1, as an idle link shows")
    width_now: int | None = None
    slot_gen: int | None = None
    slot_width: int | None = None
    mig: tuple[MigSlice, ...] = ()
    mig_enabled: bool = False
    processes: tuple[Process, ...] = ()
    fields: dict[str, str] = {}

    @property
    def model(self) -> Card:
        """The card model's data."""
        return cards()[self.card]


class SimPair(_Value):
    """What lies between cards `a` and `b` (places in `SimHost.gpus`), where it differs from the host's defaults."""

    a: int
    b: int
    ancestor: Ancestor | None = None
    nvlink: int = 0
    peer: PeerStatus | None = None


class SimNic(_Value):
    """A network card that `topo -m` lists; `near` gives its ancestor with each card, SYS where absent."""

    name: str
    near: dict[int, str] = {}


class SimHost(_Value):
    """A machine with cards. `gpus` stand in PCI bus order, the order of NVML and nvidia-smi."""

    name: str
    driver: str = "580.126.09"
    cuda: str = "13.0"
    module: Literal["open", "proprietary"] = "open"
    wsl2: bool = False
    numa_cpus: dict[int, str] = {0: "0-31"}
    ancestor: Ancestor = "PHB"
    peer: PeerStatus = "NS"
    nvswitch: bool = False
    nvswitch_in_sysfs: bool = True
    fabric_manager: bool = True
    gpus: tuple[SimGpu, ...] = ()
    pairs: tuple[SimPair, ...] = ()
    nics: tuple[SimNic, ...] = ()

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        buses = [gpu.bus.lower() for gpu in self.gpus]
        if buses != sorted(set(buses)):
            raise ValueError(f"{self.name}: cards must stand in PCI bus order, each on its own bus id")
        if unknown := {gpu.card for gpu in self.gpus} - set(cards()):
            raise ValueError(f"{self.name}: not in cards.yaml: {', '.join(sorted(unknown))}")
        if wrong := [pair for pair in self.pairs if not 0 <= pair.a < pair.b < len(self.gpus)]:
            raise ValueError(f"{self.name}: a pair needs 0 <= a < b < number of cards: {wrong[0]}")
        return self

    def uuid(self, index: int) -> str:
        """UUID of a card: as given, or made from machine and bus id, the same in every run."""
        gpu = self.gpus[index]
        return gpu.uuid or f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{self.name}/{gpu.bus}')}"

    def pair(self, a: int, b: int) -> SimPair:
        """What lies between two cards, defaults filled in; on an NVSwitch machine every pair has all lanes."""
        low, high = sorted((a, b))
        stated = next((pair for pair in self.pairs if (pair.a, pair.b) == (low, high)), SimPair(a=low, b=high))
        lanes = self.gpus[low].model.links if self.nvswitch and self.fabric_manager else stated.nvlink
        return SimPair(
            a=low,
            b=high,
            ancestor=stated.ancestor or self.ancestor,
            nvlink=lanes,
            peer=stated.peer or ("OK" if lanes else self.peer),
        )


@cache
def cards() -> dict[str, Card]:
    """Every card model the simulator knows, by the name that NVML reports."""
    document = yaml.safe_load((HERE / "cards.yaml").read_text())
    return {name: Card(**{**document["defaults"], **values}) for name, values in document["cards"].items()}


def names() -> list[str]:
    """The machines in `inventories/`."""
    return sorted(path.stem for path in (HERE / "inventories").glob("*.yaml"))


def load(name: str) -> SimHost:
    """A machine of `inventories/` by name. Raises FileNotFoundError, or pydantic's ValidationError."""
    return parse((HERE / "inventories" / f"{name}.yaml").read_text(), name)


def parse(text: str, name: str) -> SimHost:
    """A machine from YAML text; `buses` in a card entry makes that card once for each bus id."""
    document: dict[str, Any] = yaml.safe_load(text)
    gpus: list[dict[str, Any]] = []
    for entry in document.pop("gpus", []):
        buses = entry.pop("buses", None)
        gpus.extend({**entry, "bus": bus} for bus in buses or [entry["bus"]])
    return SimHost(**{"name": name, **document, "gpus": gpus})

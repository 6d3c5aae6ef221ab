"""Sources become one card list: fields merged by trust, identity by UUID and PCI address, never by count alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from qwenlab import gpu_data
from qwenlab.facts.readings import FOREIGN_DRIVERS, CardReading, Lost, PairReading, Reading
from qwenlab.facts.topology import Topology
from qwenlab.host_inventory import Source

_FIELDS = tuple(item.name for item in fields(CardReading) if item.name not in ("index", "fault", "mig_instances"))
_PAIR_FIELDS = tuple(item.name for item in fields(PairReading) if item.name not in ("a", "b"))
# A difference here means that two sources describe different cards or that one of them is wrong.
_MUST_AGREE = ("uuid", "bus_id", "device_id", "compute_capability", "memory_total_mib", "mig_enabled")
_MEMORY_TOLERANCE_MIB = 1024


@dataclass
class Merged:
    """One card under construction."""

    values: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Source] = field(default_factory=dict)
    index: int | None = None  # nvidia-smi's and NVML's
    sources: list[Source] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    mig: tuple[Any, ...] = ()
    xids: tuple[int, ...] = ()
    cpu_affinity: str | None = None
    numa_affinity: str | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _FIELDS:
            return self.values.get(name)
        raise AttributeError(name)

    @property
    def spec(self) -> gpu_data.GpuSpec | None:
        """The device table's entry."""
        return gpu_data.find(
            name=self.values.get("name"),
            device_id=self.values.get("device_id"),
            memory_mib=self.values.get("memory_total_mib"),
        )

    @property
    def label(self) -> str:
        """How to name the card to its owner."""
        where = self.values.get("bus_id") or (f"index {self.index}" if self.index is not None else "unknown slot")
        return f"{self.values.get('name') or 'NVIDIA card'} at {where}"

    @property
    def identity(self) -> str | None:
        """UUID, else the PCI address."""
        return self.values.get("uuid") or self.values.get("bus_id")


@dataclass
class MergedPair:
    """The relation of two cards under construction, with provenance."""

    values: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Source] = field(default_factory=dict)


@dataclass
class Merge:
    """All sources folded into one, most trusted first; `conflicts` are sentences about differences."""

    cards: list[Merged] = field(default_factory=list)
    pairs: dict[tuple[int, int], MergedPair] = field(default_factory=dict)
    conflicts: list[str] = field(default_factory=list)

    def add_driver_view(self, source: Source, reading: Reading) -> None:
        """Fold in cards that the driver (or a published list) names, numbered as nvidia-smi numbers them."""
        known = any(card.values.get("name") for card in self.cards)
        for card in self._identified(source, reading.cards):
            merged = self._match(card, by_index=True)
            if merged is None:
                if known:
                    self.conflicts.append(
                        f"{source}: card {card.index} ({card.name}) is not known to the source before"
                    )
                merged = Merged(index=card.index)
                self.cards.append(merged)
            self._fold(merged, source, card)
        for pair in reading.pairs:
            self._fold_pair(source, pair)
        for lost in reading.lost:
            self._mark_lost(lost)

    def _identified(self, source: Source, cards: tuple[CardReading, ...]) -> list[CardReading]:
        """The cards without what stands for several of them: UUIDs that somebody made unreadable, or copied."""
        found = list(cards)
        for name in ("uuid", "bus_id"):
            values = [getattr(card, name) for card in cards]
            for value in sorted({value for value in values if value and values.count(value) > 1}):
                self.conflicts.append(f"{source} names {value} for {values.count(value)} cards: it identifies none")
                found = [_without(card, name) if getattr(card, name) == value else card for card in found]
        return found

    def add_given_view(self, reading: Reading) -> None:
        """Fold in a published card list; it is the driver's view as somebody wrote it down."""
        self.add_driver_view(Source.GIVEN, reading)

    def add_bus_view(self, source: Source, reading: Reading, driver_listed: bool, gone: tuple[str, ...] = ()) -> None:
        """Fold in what is plugged in. A card that the driver does not list, while it lists others, is lost.

        `gone`: addresses of cards that fell off the bus or that the driver would not take.
        """
        unmatched: list[CardReading] = []
        pci_index: dict[int, Merged] = {}
        for card in reading.cards:
            merged = self._match(card, by_index=False)
            if merged is None:
                unmatched.append(card)
            else:
                self._fold(merged, source, card)
                pci_index[card.index or 0] = merged
        for card, merged in self._by_order(unmatched, gone):
            self._fold(merged, source, card)
            pci_index[card.index or 0] = merged
            unmatched.remove(card)
        for card in unmatched:
            merged = Merged()
            self._fold(merged, source, card)
            if driver_listed and card.kernel_driver not in FOREIGN_DRIVERS:
                merged.faults.append("plugged in, but the driver does not list it")
            self.cards.append(merged)
            pci_index[card.index or 0] = merged
        for pair in reading.pairs:
            a, b = pci_index.get(pair.a), pci_index.get(pair.b)
            if a and b:
                self._fold_values(self._pair_of(a, b), source, pair)

    def add_topology(self, topology: Topology) -> None:
        """Fold in `topo -m`; columns without a card yet become cards."""
        by_index = {card.index: card for card in self.cards if card.index is not None}
        for index in topology.gpus:
            card = by_index.get(index)
            if card is None:
                card = Merged(index=index, sources=[Source.NVIDIA_SMI])
                if by_index and len(topology.gpus) > len(by_index):
                    self.conflicts.append(f"topo -m has a column GPU{index} that no other source knows")
                self.cards.append(card)
            card.cpu_affinity = topology.cpu_affinity.get(index)
            card.numa_affinity = topology.numa_affinity.get(index)
            if "numa_node" not in card.values and (card.numa_affinity or "").isdigit():
                card.values["numa_node"] = int(card.numa_affinity or "0")
                card.provenance["numa_node"] = Source.NVIDIA_SMI
        absent = sorted(by_index.keys() - set(topology.gpus))
        if absent:
            names = ", ".join(f"GPU{index}" for index in absent)
            self.conflicts.append(f"topo -m has no column for {names}: how near it is to the others is not known")
        for pair in topology.pairs:
            self._fold_pair(Source.NVIDIA_SMI, pair)

    def add_peers(self, read: dict[tuple[int, int], str], write: dict[tuple[int, int], str]) -> None:
        """Fold in `topo -p2p r` and `w`; of two directions the refusing one counts. Where no other source names a
        card, the matrix's columns are the cards."""
        if not self.cards:
            named = sorted({index for pair in (*read, *write) for index in pair})
            self.cards += [Merged(index=index, sources=[Source.NVIDIA_SMI]) for index in named]
        for name, codes in (("peer_read", read), ("peer_write", write)):
            for a, b in {(min(pair), max(pair)) for pair in codes}:
                both = [codes[pair] for pair in ((a, b), (b, a)) if pair in codes]
                code = next((code for code in both if code != "OK"), both[0])
                self._fold_pair(Source.NVIDIA_SMI, _peer(a, b, name, code))

    def sort(self) -> None:
        """PCI bus order where every address is known, else the driver's order with unlisted cards behind."""
        if all(card.bus_id for card in self.cards):
            self.cards.sort(key=lambda card: str(card.bus_id))
        else:
            self.cards.sort(key=lambda card: (card.index is None, card.index or 0, str(card.bus_id)))

    def fill_from_device_table(self) -> None:
        """Name, architecture, compute capability and memory of cards that only their ids or names are known of."""
        for card in self.cards:
            spec = card.spec
            family = gpu_data.family_of(card.device_id, name=card.name) if spec is None else None
            guesses: dict[str, Any] = {}
            if spec is not None:
                guesses = {
                    "name": spec.name,
                    "architecture": spec.architecture,
                    "compute_capability": spec.compute_capability,
                    "memory_unified": spec.unified_memory or None,
                }
                if len(spec.memory_gib) == 1 and not spec.unified_memory:
                    guesses["memory_total_mib"] = int(spec.memory_gib[0] * 1024)
            elif family is not None:
                guesses = {"architecture": family.architecture, "compute_capability": family.compute_capability}
            elif card.name:
                guesses = gpu_data.in_common(gpu_data.of_cut_name(card.name, card.memory_total_mib))
            for name, value in guesses.items():
                if value is not None and card.values.get(name) is None:
                    card.values[name] = value
                    card.provenance[name] = Source.DEVICE_TABLE

    def _by_order(self, unmatched: list[CardReading], gone: tuple[str, ...]) -> list[tuple[CardReading, Merged]]:
        """Cards that the driver lists without an address are the bus's in its order, where as many are left over: of
        all, of those that can be driven, or of these of one model."""
        nameless = [merged for merged in self.cards if merged.bus_id is None]
        driven = [
            card
            for card in unmatched
            if card.fault is None and card.bus_id not in gone and card.kernel_driver not in FOREIGN_DRIVERS
        ]
        for left in (unmatched, driven):
            if len(left) == len(nameless):
                return list(zip(left, nameless, strict=True))
        pairs: list[tuple[CardReading, Merged]] = []
        for spec in {merged.spec for merged in nameless} - {None}:
            ours = [merged for merged in nameless if merged.spec == spec]
            theirs = [card for card in driven if card.device_id and gpu_data.find(device_id=card.device_id) == spec]
            if len(ours) == len(theirs):
                pairs += zip(theirs, ours, strict=True)
        return pairs

    def _match(self, reading: CardReading, *, by_index: bool) -> Merged | None:
        for name in ("uuid", "bus_id"):
            value = getattr(reading, name)
            found = [card for card in self.cards if value and card.values.get(name) == value]
            if found:
                return found[0]
        if not by_index:
            return None
        return next(
            (
                card
                for card in self.cards
                if card.index == reading.index
                and not any(
                    getattr(reading, name) and card.values.get(name) and card.values[name] != getattr(reading, name)
                    for name in ("uuid", "bus_id")
                )
            ),
            None,
        )

    def _fold(self, merged: Merged, source: Source, card: CardReading) -> None:
        if source not in merged.sources:
            merged.sources.append(source)
        for name in _FIELDS:
            value = getattr(card, name)
            if value is None:
                continue
            if name not in merged.values:
                merged.values[name] = value
                merged.provenance[name] = source
            elif name in _MUST_AGREE and _differs(name, merged.values[name], value):
                before = merged.provenance[name]
                self.conflicts.append(
                    f"{merged.label}: {name} is {merged.values[name]} by {before}, {value} by {source}"
                )
        if card.fault and card.fault not in merged.faults:
            merged.faults.append(card.fault)
        if card.mig_instances and (not merged.mig or not merged.mig[0].uuid):
            merged.mig = _with_memory(card.mig_instances, merged.mig)

    def _fold_pair(self, source: Source, pair: PairReading) -> None:
        by_index = {card.index: card for card in self.cards if card.index is not None}
        a, b = by_index.get(pair.a), by_index.get(pair.b)
        if a is None or b is None:
            self.conflicts.append(f"{source} relates cards {pair.a} and {pair.b}; one of them is not known")
        else:
            self._fold_values(self._pair_of(a, b), source, pair)

    def _pair_of(self, a: Merged, b: Merged) -> MergedPair:
        low, high = sorted((id(a), id(b)))
        return self.pairs.setdefault((low, high), MergedPair())

    def _fold_values(self, merged: MergedPair, source: Source, pair: PairReading) -> None:
        for name in _PAIR_FIELDS:
            value = getattr(pair, name)
            if value is None:
                continue
            if name not in merged.values:
                merged.values[name] = value
                merged.provenance[name] = source
            elif name in ("lanes", "peer_read") and merged.values[name] != value:
                before = merged.provenance[name]
                self.conflicts.append(
                    f"cards {pair.a} and {pair.b}: {name} is {merged.values[name]} by {before}, {value} by {source}"
                )

    def _mark_lost(self, lost: Lost) -> None:
        words = "nvidia-smi gets no handle for it" + (f" ({lost.why})" if lost.why else "")
        found = [card for card in self.cards if lost.bus_id and card.bus_id == lost.bus_id]
        found = found or [card for card in self.cards if lost.index is not None and card.index == lost.index]
        if not found:
            card = Merged(index=lost.index)
            if lost.bus_id:
                card.values["bus_id"] = lost.bus_id
                card.provenance["bus_id"] = Source.NVIDIA_SMI
            card.sources.append(Source.NVIDIA_SMI)
            self.cards.append(card)
            found = [card]
        for card in found:
            if words not in card.faults:
                card.faults.append(words)


def _without(card: CardReading, name: str) -> CardReading:
    return replace(card, uuid=None) if name == "uuid" else replace(card, bus_id=None)


def _peer(a: int, b: int, name: str, code: str) -> PairReading:
    return PairReading(a, b, peer_read=code) if name == "peer_read" else PairReading(a, b, peer_write=code)


def _differs(name: str, a: Any, b: Any) -> bool:
    if name == "memory_total_mib":
        return abs(int(a) - int(b)) > _MEMORY_TOLERANCE_MIB
    return bool(a != b)


def _with_memory(new: Iterable[Any], old: tuple[Any, ...]) -> tuple[Any, ...]:
    """Instances of one source, with memory sizes that another source listed in the same order."""
    items = list(new)
    if len(items) != len(old):
        return tuple(items)
    return tuple(
        type(item)(item.profile or before.profile, item.uuid or before.uuid, item.memory_mib or before.memory_mib)
        for item, before in zip(items, old, strict=True)
    )

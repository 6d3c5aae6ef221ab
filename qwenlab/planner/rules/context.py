"""What a rule may look at: the shape of one engine and what is derived from it, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.version import Version

from qwenlab.host_inventory import Ancestor, GpuPair, HostInventory
from qwenlab.planner.capabilities import ADA, AMPERE, HOPPER, ComputeCapability
from qwenlab.planner.plan import Workload
from qwenlab.planner.rules import links
from qwenlab.planner.shape import Card, EngineShape

if TYPE_CHECKING:
    from qwenlab.planner.catalogue import CheckpointSpec, DrafterSpec
    from qwenlab.planner.memory import KvLayout

__all__ = ["ADA", "AMPERE", "HOPPER", "ComputeCapability", "Context"]  # what a rule's condition is written with


@dataclass(frozen=True)
class Context:
    """One engine of one host.

    Attributes:
        shape: the engine.
        index: its place among the host's engines, from 0.
        inventory: the host.
        checkpoint, drafter: catalogue entries.
        workload: what the host is asked to be good at.
        layout: how the KV pool is cut into blocks.
        blocks: KV blocks per replica, as the memory model counts them; None when vLLM sizes the pool.
        kv_bytes: bytes per card to pin; None when vLLM sizes the pool.
        utilization: share of the fullest card that is free for the engine.
        multicast: NVLink multicast may be used.
        tuned_block_fp8: the Triton block-FP8 kernel has configurations tuned on the host's cards.
        model_path, drafter_path: directories of the checkpoints on the host.
        served_names, host, port: of the API.
        home: of the service user.
    """

    shape: EngineShape
    index: int
    inventory: HostInventory
    checkpoint: CheckpointSpec
    drafter: DrafterSpec | None
    workload: Workload
    layout: KvLayout
    model_path: str
    drafter_path: str | None
    served_names: tuple[str, ...]
    host: str
    port: int
    home: str
    utilization: float
    blocks: int | None = None
    kv_bytes: int | None = None
    multicast: bool = True
    tuned_block_fp8: bool = False

    @cached_property
    def vllm(self) -> Version:
        """Version that the arguments are for."""
        return Version(self.shape.vllm)

    @property
    def cards(self) -> tuple[Card, ...]:
        """Cards in rank order."""
        return self.shape.cards

    @property
    def world(self) -> int:
        """Number of ranks over all replicas."""
        return len(self.shape.cards)

    @property
    def method(self) -> str | None:
        """Speculation method."""
        return self.shape.speculation.method if self.shape.speculation else None

    @property
    def draft_tokens(self) -> int:
        """Draft tokens per step; 0 without speculation."""
        return self.shape.speculation.tokens if self.shape.speculation else 0

    @cached_property
    def capabilities(self) -> tuple[ComputeCapability, ...]:
        """Distinct compute capabilities, lowest first."""
        return tuple(sorted({card.compute_capability for card in self.cards}))

    @property
    def lowest(self) -> ComputeCapability:
        """The lowest compute capability among the cards."""
        return self.capabilities[0]

    @property
    def mixed_silicon(self) -> bool:
        """Cards of different compute capability serve one engine."""
        return len(self.capabilities) > 1

    @cached_property
    def pairs(self) -> tuple[GpuPair | None, ...]:
        """Links within the tensor-parallel groups."""
        return links.tensor_pairs(self.shape)

    @cached_property
    def peers(self) -> bool:
        """Every tensor-parallel pair has peer access."""
        return bool(self.pairs) and all(links.peer_access(pair) for pair in self.pairs)

    @cached_property
    def peer_test_failed(self) -> bool:
        """The live peer test did not pass for a pair that the engine would use."""
        return any(pair is not None and pair.measured_peer_ok is False for pair in self.pairs)

    @cached_property
    def bridged(self) -> bool:
        """Every tensor-parallel pair is joined by NVLink or an NVSwitch."""
        return bool(self.pairs) and all(links.bridged(pair) for pair in self.pairs)

    @cached_property
    def switched(self) -> bool:
        """An NVSwitch joins the cards: multicast exists."""
        return any(pair is not None and pair.nvswitch for pair in self.pairs)

    @cached_property
    def ancestor(self) -> Ancestor | None:
        """The farthest common ancestor of a tensor-parallel pair that no bridge joins."""
        return links.farthest(pair for pair in self.pairs if not links.bridged(pair))

    @cached_property
    def custom_all_reduce(self) -> bool:
        """vLLM's own all-reduce kernel is left on."""
        if self.shape.tp == 1 or not self.peers or self.nodes:
            return False
        if self.bridged:
            return True
        return self.shape.tp == 2 and not self._unproven_blackwell

    @cached_property
    def _unproven_blackwell(self) -> bool:
        consumer = any(capability[0] == 12 for capability in self.capabilities)
        proven = all(pair is not None and pair.measured_peer_ok is True for pair in self.pairs)
        return consumer and not proven

    @cached_property
    def nodes(self) -> tuple[tuple[Card, ...], ...]:
        """Cards of each vLLM node when the engine runs as several processes of its own; empty for one process.

        A pipeline whose stages are different silicon runs one node a stage: vLLM asks device 0 of the process for
        the compute capability, so each process must see its own card only.
        """
        shape = self.shape
        if shape.pp == 1 or shape.dp > 1 or not self.mixed_silicon:
            return ()
        return tuple(self.cards[i : i + shape.tp] for i in range(0, len(self.cards), shape.tp))

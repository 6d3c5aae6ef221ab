"""The fact on a booted host over SSH, with simulated cards below it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.context import ctx_host, ctx_state

from qwenlab.facts.host_fact import GpuHost
from qwenlab.host_inventory import HostInventory, ParseState, Source
from tests import lab
from tests.facts.hosts import codes
from tests.sim import inventory as sim
from tests.sim.faults import Fault
from tests.sim.lab_host import SimulatedGpus

pytestmark = pytest.mark.lab


def ask(host: lab.Host) -> tuple[HostInventory, list[str]]:
    """The fact as pyinfra reads it, and every command that the host was sent for it."""
    state = State(Inventory(([(host.name, host.pyinfra_data())], {})), Config())
    connect_all(state)
    (target,) = state.inventory
    sent: list[str] = []
    run: Callable[..., Any] = target.connector.run_shell_command

    def counted(command: Any, *arguments: Any, **options: Any) -> Any:
        sent.append(str(command))
        return run(command, *arguments, **options)

    target.connector.run_shell_command = counted  # type: ignore[method-assign]
    try:
        with ctx_state.use(state), ctx_host.use(target):
            return target.get_fact(GpuHost), sent
    finally:
        disconnect_all(state)


def test_one_command_tells_everything(trixie: lab.Host) -> None:
    SimulatedGpus(trixie).install(sim.load("2x3090-nvlink"))
    inventory, sent = ask(trixie)
    assert len(sent) == 1
    assert inventory.parse is ParseState.OK
    assert inventory.hostname == trixie.name
    assert (inventory.os.id, inventory.os.codename) == ("debian", "trixie")
    assert [gpu.provenance["uuid"] for gpu in inventory.usable_gpus] == [Source.NVML] * 2
    assert inventory.gpus[0].provenance["pcie.width_slot"] is Source.SYSFS
    (pair,) = inventory.pairs
    assert (pair.nvlink_lanes, pair.peer_read) == (4, True)
    assert inventory.driver.loaded == sim.load("2x3090-nvlink").driver


def test_before_and_after_the_driver_and_with_a_lost_card(trixie: lab.Host) -> None:
    gpus = SimulatedGpus(trixie)
    gpus.install(sim.load("3x3090"), driver=None)
    bare, _ = ask(trixie)
    assert [gpu.name for gpu in bare.usable_gpus] == ["NVIDIA GeForce RTX 3090"] * 3
    assert bare.driver.nouveau_loaded
    assert "driver_not_installed" in codes(bare)
    gpus.install(sim.load("3x3090"))
    gpus.set_faults(Fault.lost(1))
    lost, sent = ask(trixie)
    assert len(sent) == 1
    assert [gpu.usable for gpu in lost.gpus] == [True, False, True]
    gpus.set_faults(Fault.version_mismatch())
    assert "driver_library_mismatch" in codes(ask(trixie)[0])

"""The host's plan, made at an operation's turn: what it rests on (the driver) may have come earlier in the same run."""

from __future__ import annotations

from pyinfra.context import host

from qwenlab.driver.decision import Verdict, decide
from qwenlab.facts.calibration import Measurements
from qwenlab.facts.checkpoints import ResolvedBranches
from qwenlab.facts.driver_state import NvidiaDriver
from qwenlab.facts.host_base import HostBasics
from qwenlab.facts.host_fact import GpuHost
from qwenlab.facts.peer_verdicts import TestedPeers, as_tested
from qwenlab.facts.planned_inventory import PlannedInventory, without_own_use
from qwenlab.host_inventory import Driver, HostInventory, ParseState
from qwenlab.planner import plan
from qwenlab.planner.branches import branch_directories, with_commits
from qwenlab.planner.plan import HostPlan, Refusal, Workload
from qwenlab.settings import Settings


def host_plan(settings: Settings) -> HostPlan:
    """What the current host shall serve."""
    return plan_of(host_inventory(settings), settings)


def plan_of(inventory: HostInventory, settings: Settings) -> HostPlan:
    """What the current host shall serve, for a caller that needs its inventory too: reading that is slow."""
    return pinned(safe_plan(inventory, settings), settings)


def safe_plan(inventory: HostInventory, settings: Settings) -> HostPlan:
    """The plan; a planner that fails on one host's cards and settings refuses that host, and never stops the others."""
    try:
        return plan(inventory, settings)
    except Exception as error:
        text = (
            f"the planner failed on this host's cards and settings ({type(error).__name__}: {error}); loosen the "
            "qwen_* overrides, and report it with the output of `python -m qwenlab probe --json`"
        )
        return HostPlan(
            status="refused",
            workload=Workload(settings.workload),
            vllm=settings.release.vllm,
            refusals=(Refusal(code="planner-failed", text=text),),
        )


def pinned(made: HostPlan, settings: Settings) -> HostPlan:
    """The plan with each branch replaced by the commit that it was resolved to when it was first fetched here."""
    branches = branch_directories(made, settings.model_directory)
    if not branches:
        return made
    commits = host.get_fact(ResolvedBranches, directories=branches)
    return with_commits(made, commits, settings.model_directory)


def expected_plan(settings: Settings) -> HostPlan:
    """The plan of the host as it will be once its driver works: one that is yet to be installed, or waits for a reboot,
    is no reason against the host. Cards are then known by their PCI ids."""
    inventory = host_inventory(settings)
    made = safe_plan(inventory, settings)
    if made.status != "refused" or settings.engine == "cpu":
        return made
    if decide(host.get_fact(NvidiaDriver), settings).verdict is Verdict.LEAVE:
        return made
    cards = tuple(gpu.model_copy(update={"usable": True, "unusable_because": None}) for gpu in inventory.gpus)
    bare = {"gpus": cards, "driver": Driver(), "diagnoses": (), "parse": ParseState.OK}
    return safe_plan(inventory.model_copy(update=bare), settings)


def host_inventory(settings: Settings) -> HostInventory:
    """The current host as the planner shall see it; the cpu engine needs no look at cards."""
    measured = {"measurements": host.get_fact(Measurements)}
    if settings.engine == "cpu":
        base = host.get_fact(HostBasics, paths=())
        found = HostInventory(hostname=host.name, cpu_count=base.cpus, ram_total_gib=base.ram_gib)
        return found.model_copy(update=measured)
    found = without_own_use(host.get_fact(GpuHost), host.get_fact(PlannedInventory))
    return as_tested(found, host.get_fact(TestedPeers)).model_copy(update=measured)

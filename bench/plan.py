"""How long planning takes: 16 mixed cards cold, and a fleet of 1,000 hosts. Figures, not a test.

    python -m bench.plan [--hosts N]

Goals: under 100 ms for the 16 mixed cards, under 20 s for 1,000 hosts.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import cycle, islice
from statistics import median

from qwenlab.host_inventory import HostInventory
from qwenlab.planner import plan
from qwenlab.planner.choose import choose
from qwenlab.planner.host import host_of
from qwenlab.planner.planning import search_of
from qwenlab.settings import Settings, load
from tests.planner.machines import inventories

WORKLOADS = ("chat", "batch", "long", "edit")
REPEATS = 5


def _seconds(work: Callable[[], object]) -> float:
    """Processor seconds of one call: other load on the machine does not count."""
    start = time.process_time()
    work()
    return time.process_time() - start


def _forget() -> None:
    """Drop every shared evaluation and budget, as in a new process; the packaged tables stay read."""
    memory = (f"memory.{name}" for name in ("budget", "config", "layout", "pool", "weights"))
    for name in ("evaluate", *memory):
        for member in vars(import_module(f"qwenlab.planner.{name}")).values():
            if hasattr(member, "cache_clear"):
                member.cache_clear()


def _choice(inventory: HostInventory, settings: Settings) -> Callable[[], object]:
    host = host_of(inventory, settings)
    return lambda: choose(search_of(host))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    options = parser.parse_args()
    machines = inventories()
    settings = {workload: load({"qwen_workload": workload}) for workload in WORKLOADS}
    plan(machines["1xl40s"], settings["chat"])  # reads the packaged tables
    for workload in WORKLOADS:
        times: dict[str, list[float]] = {"choice": [], "plan": []}
        for _ in range(REPEATS):
            _forget()
            times["choice"].append(_seconds(_choice(machines["16-mixed"], settings[workload])))
            _forget()
            times["plan"].append(_seconds(partial(plan, machines["16-mixed"], settings[workload])))
        print(
            f"16 mixed cards, {workload:6s} choice {median(times['choice']) * 1e3:6.0f} ms, "
            f"whole plan {median(times['plan']) * 1e3:6.0f} ms"
        )
    _forget()
    fleet = list(islice(cycle(machines.values()), options.hosts))
    random.Random(1).shuffle(fleet)
    taken = _seconds(lambda: [plan(inventory, settings["chat"]) for inventory in fleet])
    print(f"{options.hosts} hosts of {len(machines)} kinds: {taken:.1f} s, {taken / options.hosts * 1e3:.1f} ms a host")


if __name__ == "__main__":
    main()

"""What must hold for any host: nothing overcommitted, nothing used twice, more never worse."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwenlab.host_inventory import Ancestor, GpuPair, HostInventory
from qwenlab.planner import plan
from qwenlab.planner.choose import CLEARLY, choose
from qwenlab.planner.host import host_of
from qwenlab.planner.planning import search_of
from qwenlab.settings import load
from tests.planner.machines.build import Machine, machine

CARDS = [
    ("RTX 3090", None),
    ("RTX 3060", None),
    ("RTX 3080", 10.0),
    ("RTX 3080", 20.0),
    ("RTX 4060 Ti", 16.0),
    ("RTX 4070 Ti SUPER", None),
    ("RTX 4090", None),
    ("RTX 5060 Ti", None),
    ("RTX 5090", None),
    ("RTX A4000", None),
    ("RTX A6000", None),
    ("A100-SXM4-40GB", None),
    ("NVIDIA H200", None),
]
WORKLOADS = st.sampled_from(["chat", "batch", "long", "edit"])
QUICK = settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def hosts(draw: st.DrawFn, most: int = 5) -> HostInventory:
    """One to `most` cards of at most three kinds, any links, some memory taken."""
    kinds = draw(st.lists(st.sampled_from(CARDS), min_size=1, max_size=3, unique=True))
    names = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=most))
    used = draw(st.lists(st.integers(0, 3000), min_size=len(names), max_size=len(names)))
    pairs = list(combinations(range(len(names)), 2))
    bridges = draw(st.lists(st.sampled_from(pairs), max_size=2, unique=True)) if pairs else []
    entry = Machine(
        "random",
        tuple(names),
        draw(st.sampled_from(["none", "peer", "nvlink"])),
        draw(st.sampled_from(list(Ancestor))),
        bridges=tuple(bridges),
        used_mib=tuple(used),
        wsl2=draw(st.booleans()),
    )
    return machine(entry)


def given_settings(workload: str, **more: Any) -> dict[str, Any]:
    return {"qwen_workload": workload, **more}


def reached(inventory: HostInventory, workload: str) -> float:
    """The score of what is chosen, which may leave cards out."""
    return choose(search_of(host_of(inventory, load(given_settings(workload))))).score


def score(inventory: HostInventory, workload: str) -> float:
    return search_of(host_of(inventory, load(given_settings(workload)))).best()[0]


@QUICK
@given(hosts(), WORKLOADS)
def test_no_plan_exceeds_a_card_or_uses_anything_twice(inventory: HostInventory, workload: str) -> None:
    host = plan(inventory, load(given_settings(workload)))
    totals = {gpu.uuid: (gpu.memory_total_mib or 0) / 1024 for gpu in inventory.gpus}
    used = [uuid for engine in host.engines for uuid in engine.gpus]
    assert len(used) == len(set(used))
    assert set(used) | {card.gpu for card in host.idle} == set(totals) or host.status == "refused"
    assert len({engine.port for engine in host.engines}) == len({engine.name for engine in host.engines})
    assert len({engine.port for engine in host.engines}) == len(host.engines)
    for engine in host.engines:
        assert len(engine.gpus) == engine.tp * engine.pp * engine.dp
        assert engine.tp in (1, 2, 4, 8)
        assert engine.partition is None or (len(engine.partition) == engine.pp and sum(engine.partition) == 64)
        assert (engine.partition is None) == (engine.pp == 1)
        assert engine.pp == 1 or engine.speculation is None or engine.speculation.method != "mtp"
        assert [rank.gpu for rank in engine.memory] == list(engine.gpus)
        for rank in engine.memory:
            parts = rank.weights + rank.kv + rank.workspace + rank.graphs + rank.in_use + rank.margin
            assert parts <= rank.total + 0.005
            assert rank.total <= totals[rank.gpu]
            assert rank.margin > 0.3
        assert engine.kv is not None
        assert engine.kv.tokens >= engine.max_model_len
        assert engine.kv.blocks >= engine.max_num_seqs


@QUICK
@given(hosts(most=4), WORKLOADS, st.data())
def test_more_memory_on_a_card_never_makes_the_host_score_worse(
    inventory: HostInventory, workload: str, data: st.DataObject
) -> None:
    which = data.draw(st.integers(0, len(inventory.gpus) - 1))
    more = data.draw(st.sampled_from([512, 2048, 8192, 24_576, 65_536]))
    gpus = tuple(
        gpu.model_copy(update={"memory_total_mib": (gpu.memory_total_mib or 0) + more}) if gpu.index == which else gpu
        for gpu in inventory.gpus
    )
    richer = inventory.model_copy(update={"gpus": gpus})
    assert score(richer, workload) >= score(inventory, workload) - 1e-9


@QUICK
@given(hosts(most=4), WORKLOADS, st.data())
def test_peer_access_never_makes_the_host_score_worse(
    inventory: HostInventory, workload: str, data: st.DataObject
) -> None:
    granted = data.draw(st.sets(st.integers(0, max(0, len(inventory.pairs) - 1))))
    pairs: tuple[GpuPair, ...] = tuple(
        pair.model_copy(update={"peer_read": True, "peer_write": True}) if place in granted else pair
        for place, pair in enumerate(inventory.pairs)
    )
    assert score(inventory.model_copy(update={"pairs": pairs}), workload) >= score(inventory, workload) - 1e-9


def reordered(inventory: HostInventory, order: list[int]) -> HostInventory:
    """The same cards in other slots: `order` lists old places by new place. Links go with their cards."""
    new = {old: place for place, old in enumerate(order)}
    return inventory.model_copy(
        update={
            "gpus": tuple(inventory.gpus[old].model_copy(update={"index": new[old]}) for old in order),
            "pairs": tuple(
                pair.model_copy(update=dict(zip("ab", sorted((new[pair.a], new[pair.b])), strict=True)))
                for pair in inventory.pairs
            ),
        }
    )


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(hosts(most=4), WORKLOADS, st.data())
def test_slots_do_not_change_what_a_host_reaches(inventory: HostInventory, workload: str, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(inventory.gpus))))
    assert score(reordered(inventory, order), workload) == pytest.approx(score(inventory, workload))


@pytest.mark.parametrize("workload", ["chat", "batch", "edit"])
def test_a_desktop_on_one_of_three_cards_costs_the_same_in_every_slot(workload: str) -> None:
    """A pipeline over three RTX 3080 scored 45 or 132 for edits, by the slot of the one with the screen."""
    scores = [
        score(machine(Machine("three", (("RTX 3080", 10.0),) * 3, used_mib=used)), workload)
        for used in ((1300, 0, 0), (0, 1300, 0), (0, 0, 1300))
    ]
    assert scores == pytest.approx([scores[0]] * 3)


@QUICK
@given(hosts(most=4), WORKLOADS, st.sampled_from(CARDS))
def test_one_more_card_never_makes_a_host_worse(inventory: HostInventory, workload: str, extra: Any) -> None:
    """Cards are left idle only for a clear gain, so that throughput may fall by less than that."""
    names = tuple((gpu.name or "", (gpu.memory_total_mib or 0) / 1024) for gpu in inventory.gpus)
    known = Machine("random", names)
    grown = Machine("random", (*names, extra))
    slack = CLEARLY if workload == "batch" else 1.0
    assert slack * reached(machine(grown), workload) >= reached(machine(known), workload) - 1e-9


@pytest.mark.parametrize(
    ("cards", "extra"),
    [
        (("RTX 4090",) * 5, "RTX 3060"),  # went into a pipeline with the fifth: 2521 instead of 2871 tok/s
        (("RTX 3090",) * 2, "RTX 3060"),
        (("NVIDIA H200",) * 5, "RTX 4060 Ti"),
        (("RTX 5090",), "RTX 3060"),
    ],
)
def test_a_weak_card_beside_strong_ones_does_not_slow_batches(cards: tuple[str, ...], extra: str) -> None:
    alone = Machine("strong", tuple((name, None) for name in cards))
    together = Machine("strong", (*alone.cards, (extra, None)))
    assert CLEARLY * reached(machine(together), "batch") >= reached(machine(alone), "batch")
    assert plan(machine(together), load(given_settings("batch"))).status == "planned"


def test_slow_cards_that_serve_well_are_not_left_idle() -> None:
    """One RTX 5090 takes more of the requests than four RTX 3060, but not all."""
    mixed = Machine("mixed", (*[("RTX 3060", None)] * 4, ("RTX 5090", None)))
    assert plan(machine(mixed), load(given_settings("batch"))).idle == ()


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(hosts(most=8), WORKLOADS)
def test_larger_hosts_keep_the_same_promises(inventory: HostInventory, workload: str) -> None:
    before = score(inventory, workload)
    gpus = tuple(
        gpu.model_copy(update={"memory_total_mib": (gpu.memory_total_mib or 0) + 4096}) for gpu in inventory.gpus
    )
    pairs = tuple(pair.model_copy(update={"peer_read": True, "peer_write": True}) for pair in inventory.pairs)
    assert score(inventory.model_copy(update={"gpus": gpus}), workload) >= before - 1e-9
    assert score(inventory.model_copy(update={"pairs": pairs}), workload) >= before - 1e-9

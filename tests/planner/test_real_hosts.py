"""What real hosts have that no data sheet says: cards that are nearly the same, leftovers of other programs."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.host_inventory import PcieLink, PowerLimit
from qwenlab.planner import plan
from qwenlab.settings import load
from tests.facts.hosts import corpus
from tests.planner.choosing import INVENTORIES, only


@pytest.mark.parametrize(
    "differences",
    [
        ({"memory_used_mib": 1}, {"memory_used_mib": 17}),
        ({"memory_reserved_mib": 400}, {"memory_reserved_mib": 421}),
        ({"pcie": PcieLink(generation_max=4, width_max=16)}, {"pcie": PcieLink(generation_max=4, width_max=4)}),
        ({"power": PowerLimit(limit_w=450)}, {"power": PowerLimit(limit_w=300)}),
    ],
    ids=lambda pair: next(iter(pair[0])),
)
@pytest.mark.parametrize("workload", ["chat", "batch"])
def test_copies_share_a_port_although_no_two_cards_of_a_real_host_are_quite_the_same(
    differences: tuple[dict[str, Any], dict[str, Any]], workload: str
) -> None:
    inventory = INVENTORIES["2x4090"]
    gpus = tuple(gpu.model_copy(update=more) for gpu, more in zip(inventory.gpus, differences, strict=True))
    engine = only(plan(inventory.model_copy(update={"gpus": gpus}), load({"qwen_workload": workload})))
    assert (engine.tp, engine.pp, engine.dp) == (1, 1, 2)
    assert engine.kv is not None
    assert engine.kv.tokens >= engine.max_model_len


def test_a_pytorch_that_lies_there_is_not_the_one_that_will_serve() -> None:
    """Its build had no kernels for the fastest card of the host; the release brings one that has."""
    host = plan(corpus("76"), load({}))
    assert host.engines[0].gpus == (corpus("76").gpus[0].uuid,)
    assert host.idle == ()


def test_B76_an_old_kernel_gets_nccl_without_cumem() -> None:
    """And only where ranks talk to each other."""
    assert corpus("77").os.kernel == "4.4.169"
    engine = plan(corpus("77"), load({})).engines[0]
    assert (engine.tp, engine.env["NCCL_CUMEM_ENABLE"]) == (2, "0")
    assert "NCCL_CUMEM_ENABLE" not in plan(corpus("77"), load({"qwen_cards": [0]})).engines[0].env
    assert "NCCL_CUMEM_ENABLE" not in plan(INVENTORIES["2x3090-pcie"], load({})).engines[0].env

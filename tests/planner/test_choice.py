"""What is chosen for the machines of the published recipes: their answer, or one that the model says is better."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qwenlab.planner.cards import cards_of
from qwenlab.planner.choose import choose
from qwenlab.planner.host import host_of
from qwenlab.planner.layouts import splits
from qwenlab.planner.memory import budget, kv_layout, pool
from qwenlab.planner.plan import Speculation
from qwenlab.planner.planning import search_of
from qwenlab.planner.rules import violations
from qwenlab.planner.shape import EngineShape
from qwenlab.settings import load
from tests.planner.choosing import INVENTORIES, WORKLOADS, aggregate, form, names, only, planned, speed
from tests.planner.machines import MACHINES


def test_the_matrix_has_at_least_sixty_machines_with_names_of_their_own() -> None:
    assert len(MACHINES) >= 60
    assert len({machine.name for machine in MACHINES}) == len(MACHINES)


def test_one_3090_chat_is_dflash2_with_16_bit_cache_at_64k_and_more() -> None:
    """HyperQwen's setup B: 65,536 tokens, 122-131 tok/s."""
    engine = only(planned("1x3090"))
    assert engine.speculation == Speculation(method="dflash", tokens=7)
    assert (engine.kv_cache_dtype, engine.attention_backend) == ("bfloat16", "FLASH_ATTN")
    assert engine.max_model_len >= 65_000
    assert speed(engine) >= 110


def test_one_3090_batch_has_no_drafter_and_an_fp8_cache() -> None:
    """HyperQwen's setup A: 830 tok/s with 16-bit activations at 64 requests, 150,000 tokens."""
    engine = only(planned("1x3090", "batch"))
    assert engine.speculation is None
    assert engine.kv_cache_dtype == "fp8"
    assert engine.max_model_len >= 150_000
    assert aggregate(engine) >= 700


def test_one_3090_long_is_mtp_with_an_fp8_cache_beyond_150k() -> None:
    """HyperQwen's setup D: 150,000 tokens, 68 tok/s at a depth of 112,000."""
    engine = only(planned("1x3090", "long"))
    assert engine.speculation is not None
    assert engine.speculation.method == "mtp"
    assert engine.kv_cache_dtype == "fp8"
    assert engine.max_model_len >= 150_000


def test_one_3090_edit_drafts_a_whole_block() -> None:
    """HyperQwen's setup C without its lookup drafting, which no release of vLLM has."""
    engine = only(planned("1x3090", "edit"))
    assert engine.speculation == Speculation(method="dflash", tokens=7)
    assert engine.max_model_len >= 57_344


@pytest.mark.parametrize("machine", ["2x3090-nvlink", "2x3090-pcie", "2x3090-peer"])
def test_two_3090_chat_is_one_engine_over_both_with_dflash2(machine: str) -> None:
    """HyperQwen docs/multi-gpu.md: "point everyone at DFlash2", 161.6 tok/s over PCIe, 182.8 over NVLink."""
    engine = only(planned(machine))
    assert form(engine) == (2, 1, 1)
    assert engine.speculation == Speculation(method="dflash", tokens=7)
    assert engine.kv_cache_dtype == "bfloat16"
    assert engine.max_model_len == 262_144  # club-3090's ultrafast stops at 204,800 for want of the group-size patch


def test_nvlink_pays_and_peer_access_pays_less() -> None:
    host, peer, bridge = (speed(only(planned(name))) for name in ("2x3090-pcie", "2x3090-peer", "2x3090-nvlink"))
    assert host < peer < bridge


def test_two_3090_without_a_bridge_batch_is_two_copies_behind_one_port() -> None:
    """One card 1,035 tok/s, a bridged pair 1,439 (HyperQwen): two copies beat the pair where one card is enough."""
    engine = only(planned("2x3090-pcie", "batch"))
    assert form(engine) == (1, 1, 2)
    assert aggregate(engine) >= 1.35 * aggregate(only(planned("1x3090", "batch")))


def test_three_3090_are_a_pair_and_a_single_one_on_ports_of_their_own() -> None:
    host = planned("3x3090")
    assert [form(engine) for engine in host.engines] == [(2, 1, 1), (1, 1, 1)]
    assert [engine.port for engine in host.engines] == [8000, 8001]
    assert host.idle == ()


def test_three_3090_with_one_bridge_pair_the_bridged_ones() -> None:
    inventory = INVENTORIES["3x3090-one-bridge"]
    pair, _ = planned("3x3090-one-bridge").engines
    assert set(pair.gpus) == {inventory.gpus[0].uuid, inventory.gpus[2].uuid}


def test_four_5060_ti_with_peer_access_are_one_engine_that_lets_nccl_use_it_across_the_host_bridge() -> None:
    engine = only(planned("4x5060ti-peer"))
    assert form(engine) == (4, 1, 1)
    assert engine.env["NCCL_P2P_LEVEL"] == "PHB"
    assert engine.speculation == Speculation(method="dflash", tokens=7)
    assert engine.max_model_len == 262_144


@pytest.mark.parametrize("machine", ["2x4090", "2x4090-wsl2"])
def test_two_4090_without_peer_access_batch_are_two_copies(machine: str) -> None:
    """syv-ai/HyperQwen #190: 39.6 s against 110.9 s for TP=2 and 76.2 s for one card."""
    assert form(only(planned(machine, "batch"))) == (1, 1, 2)


def test_two_4090_under_wsl2_chat_stays_off_tensor_parallel_too() -> None:
    """118.7 tok/s for TP=2 against 151.1 for one card."""
    assert form(only(planned("2x4090-wsl2"))) == (1, 1, 2)


def test_four_8_gb_cards_hold_one_engine_together() -> None:
    """syv-ai/HyperQwen #210: 118.1 tok/s, on a 4-bit cache that stock vLLM does not have."""
    engine = only(planned("4x3060ti"))
    assert form(engine) == (4, 1, 1)
    assert engine.max_model_len >= 65_536
    assert speed(engine) >= 80


def test_two_12_gb_cards_share_the_model_and_pin_the_pool() -> None:
    """syv-ai/HyperQwen #68: vLLM 0.29 sized a pool that left no room for warm-up; 58-64 tok/s with the pool pinned."""
    engine = only(planned("2x3060"))
    assert form(engine) == (2, 1, 1)
    assert engine.args["kv-cache-memory-bytes"] > 0
    assert engine.max_model_len >= 65_536
    assert speed(engine) >= 55


def test_3090_and_a4000_chat_on_the_3090_because_joining_them_is_slower() -> None:
    """syv-ai/HyperQwen #160: 54.6 tok/s for TP=2 with MTP, 39.1 for PP=2; a 3090 alone does 122 with DFlash2."""
    host = planned("3090+a4000")
    first = host.engines[0]
    assert names("3090+a4000", first) == ["RTX 3090"]
    assert speed(first) >= 110
    lost = {row.layout.split(" on ")[0] for row in first.rejected}
    assert {"TP=2", "PP=2"} <= lost


def test_5090_and_4070_ti_super_chat_on_the_5090_because_its_int4_is_twice_as_fast_as_the_pipeline() -> None:
    """ExTV/dual-gpus-vllm: 24.8 ms a step over both with NVFP4; INT4 on the 5090 alone reads 13 GB, not 20."""
    first = planned("5090+4070tisuper").engines[0]
    assert names("5090+4070tisuper", first) == ["RTX 5090"]
    forced = only(planned("5090+4070tisuper", pipeline_parallel=2))
    assert speed(first) > speed(forced)


@pytest.mark.parametrize("checkpoint", ["nvfp4-unsloth", "fp8", "w8a16"])
def test_5090_and_4070_ti_super_with_larger_weights_are_a_pipeline_with_the_small_card_first(checkpoint: str) -> None:
    engine = only(planned("5090+4070tisuper", "long", checkpoint=checkpoint, context=262_144))
    assert form(engine) == (1, 2, 1)
    assert names("5090+4070tisuper", engine) == ["RTX 4070 Ti SUPER", "RTX 5090"]
    assert engine.speculation == Speculation(method="dflash", tokens=7)
    assert engine.partition is not None
    small, big = engine.partition
    assert small + big == 64
    assert 4 <= small <= 24  # 13 for NVFP4, 19 for W8A16, 21 for FP8 by hand
    assert [process.gpus for process in engine.processes] == [(engine.gpus[0],), (engine.gpus[1],)]


def pipeline_of_the_recipe(partition: tuple[int, int]) -> EngineShape:
    """ExTV/dual-gpus-vllm nvfp4-dflash2: vLLM 0.30.0, fp8 cache, float32 state, 1,024 batched tokens."""
    big, small = cards_of(INVENTORIES["5090+4070tisuper"])[0]
    return EngineShape(
        checkpoint="nvfp4-unsloth",
        cards=(small, big),
        vllm="0.30.0",
        drafter="dflash2-w4a16",
        speculation=Speculation(method="dflash", tokens=7),
        pp=2,
        partition=partition,
        kv_dtype="fp8",
        ssm_dtype="float32",
        attention_backend="FLASHINFER",
        drafter_attention_backend="TRITON_ATTN",
        max_model_len=262_144,
        max_num_seqs=2,
        max_num_batched_tokens=1024,
        block_size=1664,
        vision=True,
    )


def test_the_pipelines_recipe_by_hand_comes_out_of_the_rules_of_its_version() -> None:
    layout = kv_layout(pipeline_of_the_recipe((13, 51)))
    assert (layout.block_size, layout.blocks_to_boot) == (1664, 375)
    assert pool(pipeline_of_the_recipe((13, 51)), blocks=375).pool_tokens == 262_844


def test_the_pipelines_split_by_hand_fits_and_lies_on_the_same_stair() -> None:
    """13 to 15 first layers cost the same KV slots; the recipe kept 13 and its author measured down to 12."""
    fitting = [split for split in splits(2, 64) if budget(pipeline_of_the_recipe((split[0], split[1]))).fits]
    assert {(12, 52), (13, 51), (14, 50)} <= set(fitting)
    slots = [kv_layout(pipeline_of_the_recipe((first, 64 - first)), stage=1).slots for first in (12, 13, 15, 16)]
    assert slots == [7, 7, 7, 6]


def test_5080_beside_3080_is_named_by_uuid_in_bus_order() -> None:
    """CUDA numbers the fastest first: a 5080 was once paired with the wrong card (syv-ai/HyperQwen #216)."""
    engine = planned("5080+3080").engines[0]
    visible = ",".join(process.env.get("CUDA_VISIBLE_DEVICES", "") for process in engine.processes)
    assert engine.env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert all(uuid.startswith("GPU-") for uuid in engine.gpus)
    assert set((visible or engine.env["CUDA_VISIBLE_DEVICES"]).strip(",").split(",")) == set(engine.gpus)


def test_eight_h100_chat_is_one_engine_over_the_switch_and_batch_is_eight_copies() -> None:
    assert form(only(planned("8xh100"))) == (8, 1, 1)
    batch = only(planned("8xh100", "batch"))
    assert batch.dp * batch.tp == 8
    assert batch.dp >= 4
    assert only(planned("8xh100")).checkpoint.format == "fp8-channel"


def test_one_h200_takes_8_bit_weights_and_the_state_that_keeps_the_fused_kernel() -> None:
    """Measured: fp8 weights 1.53x at one stream; a float16 state switches the fused recurrence off."""
    for workload in WORKLOADS:
        engine = only(planned("1xh200", workload))
        assert engine.checkpoint.format == "fp8-channel"
        assert engine.args["mamba-ssm-cache-dtype"] == "bfloat16"
        assert engine.max_model_len == 262_144


def test_batches_draft_where_few_drafts_among_many_streams_were_measured() -> None:
    """On an H200 64 streams got 5,221 tok/s with one MTP draft, 4,816 with two, 4,097 with none."""
    engine = only(planned("1xh200", "batch"))
    assert engine.speculation == Speculation(method="mtp", tokens=1)
    assert engine.args["speculative-config"]["draft_lm_head_quantization"] == "fp8"
    assert engine.max_num_seqs == 64
    for machine in ("1x3090", "1x4090", "1x5090"):
        assert all(engine.speculation is None for engine in planned(machine, "batch").engines)


def test_wsl2_plans_with_less_memory_than_the_card_reports() -> None:
    native, wsl2 = only(planned("1x4090")), only(planned("1x4090-wsl2"))
    assert native.kv is not None
    assert wsl2.kv is not None
    assert sum(rank.in_use for rank in wsl2.memory) > sum(rank.in_use for rank in native.memory)
    assert wsl2.env["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:False"


TOO_SMALL = {"laptop-8gb", "1x3060"}


@pytest.mark.parametrize("machine", [machine.name for machine in MACHINES])
def test_every_machine_gets_an_answer_with_numbers_and_reasons(machine: str) -> None:
    host = planned(machine)
    assert (host.status == "refused") == (machine in TOO_SMALL)
    for engine in host.engines:
        assert speed(engine) > 5
        assert engine.reasons[0].rule == "layout-choice"
        assert engine.kv is not None
        assert engine.kv.tokens >= engine.max_model_len
    assert all(len(card.why) > 10 for card in host.idle)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_choice_breaks_a_limit_of_the_rules(workload: str) -> None:
    settings = load({"qwen_workload": workload})
    for name, inventory in INVENTORIES.items():
        choice = choose(search_of(host_of(inventory, settings)))
        for engine in choice.engines:
            shape = replace(engine.candidate.shape, cards=engine.cards, dp=engine.replicas)
            assert [limit.id for limit in violations(shape)] == [], name


def test_the_same_input_gives_the_same_plan() -> None:
    for machine in ("16-mixed", "2x3090+2x3060", "5080+3080"):
        assert planned(machine).model_dump_json() == planned(machine).model_dump_json()

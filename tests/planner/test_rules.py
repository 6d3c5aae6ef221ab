"""Which rule applies when: one line per known case, with the values that the sources found right."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qwenlab.host_inventory import Ancestor, HostInventory
from qwenlab.planner.plan import Speculation
from qwenlab.planner.render import utilization
from qwenlab.planner.rules import LEFT_OUT, LIMITS, TABLE, document
from qwenlab.planner.shape import EngineShape
from qwenlab.settings import Settings
from tests.planner.engines import NO_PEER, NVLINK, SWITCH, card, peers, rendered, shape, with_mtp, without_drafter

CUSTOM = ["+rms_norm", "+silu_and_mul"]
ROOT = Path(__file__).resolve().parents[2]
Args = dict[str, Any]

VARIABLES: list[tuple[str, EngineShape, dict[str, str | None]]] = [
    # case, engine, variables that must be so (None: not set)
    ("cards are named by UUID in rank order", shape("RTX 3090"), {"CUDA_VISIBLE_DEVICES": "GPU-0"}),
    ("never CUDA's own order (5080 with 3080)", shape("RTX 3090"), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    ("one card: expandable segments", shape("RTX 3090"), {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    (
        "NVLink: own all-reduce, so fixed segments",
        shape("RTX 3090", "RTX 3090", tp=2, link=NVLINK),
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False", "NCCL_P2P_LEVEL": None, "NCCL_PROTO": None},
    ),
    (
        "patched driver, one host bridge: PHB",
        shape("RTX 5060 Ti", "RTX 5060 Ti", "RTX 5060 Ti", "RTX 5060 Ti", tp=4, link=peers(Ancestor.PHB)),
        {"NCCL_P2P_LEVEL": "PHB", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    ),
    (
        "two host bridges of one NUMA node are PHB to NCCL",
        shape("RTX 3090", "RTX 3090", tp=2, link=peers(Ancestor.NODE)),
        {"NCCL_P2P_LEVEL": "PHB"},
    ),
    (
        "across sockets: SYS",
        shape("RTX 3090", "RTX 3090", tp=2, link=peers(Ancestor.SYS)),
        {"NCCL_P2P_LEVEL": "SYS"},
    ),
    (
        "behind a PCIe switch NCCL uses peers by itself",
        shape("RTX 3090", "RTX 3090", tp=2, link=peers(Ancestor.PIX)),
        {"NCCL_P2P_LEVEL": None},
    ),
    (
        "no peer access: small all-reduces through host memory want LL",
        shape("RTX 4090", "RTX 4090", tp=2, link=NO_PEER),
        {"NCCL_PROTO": "LL", "NCCL_P2P_LEVEL": None, "NCCL_P2P_DISABLE": None},
    ),
    (
        "peer test moved wrong data: no peers at all",
        shape("RTX 3090", "RTX 3090", tp=2, link=peers(Ancestor.PHB, ok=False)),
        {"NCCL_P2P_DISABLE": "1", "NCCL_P2P_LEVEL": None},
    ),
    (
        "split of a pipeline",
        shape("RTX 3090", "RTX 3090", pp=2, partition=(30, 34)),
        {"VLLM_PP_LAYER_PARTITION": "30,34", "NCCL_PROTO": None},
    ),
    (
        "FlashInfer's lazy workspace on small cards",
        without_drafter("RTX 3090", kv_dtype="fp8", attention_backend="FLASHINFER"),
        {"VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE": "134217728"},
    ),
    (
        "FP8 weights on consumer Blackwell: no DeepGEMM",
        shape("RTX 5090", "RTX 5090", tp=2, checkpoint="fp8"),
        {"VLLM_USE_DEEP_GEMM": "0"},
    ),
    (
        "NVFP4 on consumer Blackwell: b12x by switching CUTLASS off",
        shape("RTX 5090", checkpoint="nvfp4"),
        {"VLLM_DISABLED_KERNELS": "FlashInferCutlassNvFp4LinearKernel"},
    ),
    (
        "NVFP4 on Ampere runs on Marlin by itself",
        shape("RTX 3090", checkpoint="nvfp4"),
        {"VLLM_DISABLED_KERNELS": None},
    ),
]


@pytest.mark.parametrize(("case", "engine", "expected"), VARIABLES, ids=[case for case, _, _ in VARIABLES])
def test_an_engine_gets_these_variables(case: str, engine: EngineShape, expected: dict[str, str | None]) -> None:
    env = rendered(engine).env
    assert {name: env.get(name) for name in expected} == expected


ARGUMENTS: list[tuple[str, EngineShape, Args]] = [
    # case, engine, arguments that must be so (None: not there)
    (
        "NVLink pair keeps vLLM's all-reduce",
        shape("RTX 3090", "RTX 3090", tp=2, link=NVLINK),
        {"disable-custom-all-reduce": None},
    ),
    (
        "it needs peer access, not the bridge (#163)",
        shape("RTX 3090", "RTX 3090", tp=2, link=peers(Ancestor.PHB)),
        {"disable-custom-all-reduce": None},
    ),
    (
        "faulted at TP=2 on Blackwell with a patched driver (#105)",
        shape("RTX 5060 Ti", "RTX 5060 Ti", tp=2, link=peers(Ancestor.PHB)),
        {"disable-custom-all-reduce": True},
    ),
    (
        "and is let back in by a passed peer test",
        shape("RTX 5060 Ti", "RTX 5060 Ti", tp=2, link=peers(Ancestor.PHB, ok=True)),
        {"disable-custom-all-reduce": None},
    ),
    (
        "never over more than two PCIe cards",
        shape("RTX 3090", "RTX 3090", "RTX 3090", "RTX 3090", tp=4, link=peers(Ancestor.PHB)),
        {"disable-custom-all-reduce": True},
    ),
    ("no peer access", shape("RTX 4090", "RTX 4090", tp=2, link=NO_PEER), {"disable-custom-all-reduce": True}),
    ("unknown link counts as none", shape("RTX 4090", "RTX 4090", tp=2), {"disable-custom-all-reduce": True}),
    (
        "drafts are drawn as requests sample (#73)",
        with_mtp("RTX 3090"),
        {"speculative-config": {"method": "mtp", "num_speculative_tokens": 3, "draft_sample_method": "probabilistic"}},
    ),
    ("the last block is kept before 0.33 only", with_mtp("RTX 3090", vllm="0.32.0"), {"watchdog-config": None}),
    (
        "MTP on FlashInfer: piecewise graphs (vLLM #40880)",
        with_mtp("RTX 3090", kv_dtype="fp8", attention_backend="FLASHINFER"),
        {
            "compilation-config": {
                "max_cudagraph_capture_size": 32,
                "custom_ops": CUSTOM,
                "cudagraph_mode": "PIECEWISE",
            }
        },
    ),
    (
        "graphs cover every seat's verify block",
        shape("RTX 3090", max_num_seqs=3),
        {"compilation-config": {"max_cudagraph_capture_size": 24, "custom_ops": CUSTOM}},
    ),
    (
        "but not more than 64 on a small card (OOM on the first batch)",
        shape("RTX 3090", max_num_seqs=12),
        {"compilation-config": {"max_cudagraph_capture_size": 64, "custom_ops": CUSTOM}},
    ),
    (
        "on Hopper graphs end where CUTLASS's tiles are full",
        shape("H100", checkpoint="fp8-channel", max_num_seqs=8),
        {"compilation-config": {"cudagraph_capture_sizes": [8, 16, 48, 64], "custom_ops": CUSTOM}},
    ),
    (
        "whole requests of three tokens, and one graph for all seats",
        with_mtp("H100", checkpoint="fp8-channel", max_num_seqs=32, speculation=Speculation(method="mtp", tokens=2)),
        {"compilation-config": {"cudagraph_capture_sizes": [3, 6, 15, 48, 63, 96], "custom_ops": CUSTOM}},
    ),
    (
        "drafts go through an 8-bit copy of the head",
        with_mtp("H100", checkpoint="fp8-channel", draft_head="fp8"),
        {
            "speculative-config": {
                "method": "mtp",
                "num_speculative_tokens": 3,
                "draft_sample_method": "probabilistic",
                "draft_lm_head_quantization": "fp8",
            }
        },
    ),
    ("text only frees the tower", shape("RTX 3090"), {"language-model-only": True, "limit-mm-per-prompt": None}),
    (
        "images are bounded",
        shape("RTX 3090", vision=True),
        {"limit-mm-per-prompt": {"video": 0}, "language-model-only": None},
    ),
    ("tool calls are XML", shape("RTX 3090"), {"tool-call-parser": "qwen3_coder", "tool-strict-level": "parameter"}),
    ("retention is one block: 448 for bf16 and 7 drafts", shape("RTX 3090"), {"prefix-cache-retention-interval": 448}),
    (
        "the recurrent cache's mode follows prefix caching by itself",
        shape("RTX 3090"),
        {"enable-prefix-caching": True, "mamba-cache-mode": None},
    ),
    (
        "0.32.0 does the same",
        shape("RTX 3090", vllm="0.32.0"),
        {"enable-prefix-caching": True, "mamba-cache-mode": None},
    ),
    (
        "the cache is switched off in words that every version reads",
        shape("RTX 3090", prefix_cache=False),
        {"no-enable-prefix-caching": True, "enable-prefix-caching": None, "prefix-cache-retention-interval": None},
    ),
    (
        "long prompts share the step only where steps are long",
        shape("RTX 3090", max_num_batched_tokens=4096),
        {"long-prefill-token-threshold": 2048},
    ),
    ("backend always explicit", shape("RTX 3090"), {"attention-backend": "FLASH_ATTN", "kv-cache-dtype": "bfloat16"}),
    (
        "a pipeline pins blocks",
        shape("RTX 3090", "RTX 3090", pp=2, partition=(32, 32)),
        {"distributed-executor-backend": "mp"},
    ),
]


@pytest.mark.parametrize(("case", "engine", "expected"), ARGUMENTS, ids=[case for case, _, _ in ARGUMENTS])
def test_an_engine_gets_these_arguments(case: str, engine: EngineShape, expected: Args) -> None:
    args = rendered(engine).args
    assert {name: args.get(name) for name in expected} == expected


def test_a_block_drafter_keeps_its_last_block_before_0_33_only() -> None:
    before, after = (
        rendered(shape("RTX 3090", vllm=version)).args["speculative-config"] for version in ("0.32.0", "0.33.0")
    )
    assert before["disable_eagle_block_drop"] is True
    assert "disable_eagle_block_drop" not in after


def test_an_unequal_pair_runs_as_two_nodes_that_each_see_their_own_card() -> None:
    engine = rendered(
        shape(
            "RTX 4070 Ti SUPER", "RTX 5090", pp=2, partition=(13, 51), checkpoint="nvfp4", max_num_batched_tokens=1024
        )
    )
    small, big = engine.processes
    assert (small.gpus, small.env["CUDA_VISIBLE_DEVICES"]) == (("GPU-0",), "GPU-0")
    assert (big.gpus, big.env["CUDA_VISIBLE_DEVICES"]) == (("GPU-1",), "GPU-1")
    assert (small.args, big.args) == ({"node-rank": 0}, {"node-rank": 1, "headless": True})
    assert engine.args["nnodes"] == 2
    assert engine.args["no-enable-flashinfer-autotune"] is True
    assert "CUTE_DSL_ARCH" not in small.env
    assert big.env["CUTE_DSL_ARCH"] == "sm_120a"
    assert "VLLM_DISABLED_KERNELS" not in {**small.env, **engine.env}
    assert big.env["VLLM_DISABLED_KERNELS"] == "FlashInferCutlassNvFp4LinearKernel"
    assert engine.args["num-gpu-blocks-override"] == engine.kv.blocks if engine.kv else False


def test_an_equal_pair_runs_as_one_process() -> None:
    assert rendered(shape("RTX 3090", "RTX 3090", pp=2, partition=(32, 32))).processes == ()


def test_multicast_is_left_alone_unless_it_is_forbidden() -> None:
    engine = shape("H100", "H100", tp=2, link=SWITCH)
    assert "NCCL_NVLS_ENABLE" not in rendered(engine).env
    forbidden = rendered(engine, Settings(nvlink_multicast=False))
    assert forbidden.env["VLLM_ALLREDUCE_USE_FLASHINFER"] == "0"
    assert forbidden.env["NCCL_NVLS_ENABLE"] == "0"
    assert forbidden.args["compilation-config"]["pass_config"] == {"fuse_allreduce_rms": False}


def test_a_share_of_a_card_gets_fixed_segments() -> None:
    whole = shape("RTX 3090")
    virtual = replace(whole, cards=(replace(whole.cards[0], name="NVIDIA A10-24Q"),))
    assert rendered(virtual).env["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:False"


def test_wsl2_gets_fixed_segments_and_pinned_memory() -> None:
    env = rendered(shape("RTX 4090"), inventory=HostInventory(wsl2=True)).env
    assert env["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:False"
    assert env["VLLM_WSL2_ENABLE_PIN_MEMORY"] == "1"


@pytest.mark.parametrize(("ram", "jobs"), [(31.0, "3"), (16.0, "2"), (6.0, "1"), (128.0, None)])
def test_compiler_jobs_follow_host_memory(ram: float, jobs: str | None) -> None:
    env = rendered(shape("RTX 3090"), inventory=HostInventory(ram_total_gib=ram, cpu_count=28)).env
    assert env.get("MAX_JOBS") == jobs


def test_engines_of_a_host_take_consecutive_ports_and_rendezvous() -> None:
    pair = shape("RTX 4090", "RTX 5090", pp=2, partition=(30, 34))
    first, second = (rendered(pair, Settings(port=9000), index=index) for index in (0, 1))
    assert (first.port, second.port) == (9000, 9001)
    assert first.args["master-port"] != second.args["master-port"]
    assert first.name != second.name


def test_the_boot_time_test_of_free_memory_is_passable() -> None:
    desktop = replace(shape("RTX 3090"), cards=(card("RTX 3090", 0, in_use_gib=1.4),))
    share = utilization(desktop)
    assert share * 23.56 <= 23.56 - 1.4 - 0.5


PATCHES: list[tuple[str, EngineShape, set[str], set[str]]] = [
    # case, engine, patches it needs, patches it must not carry
    ("one card without drafter", without_drafter("RTX 3090"), {"auth-deny-default"}, {"kv-group-size", "pp-batch-cap"}),
    ("DFlash2", shape("RTX 3090"), {"kv-group-size", "dflash-fixed-block"}, {"aux-hidden-states-over-pp"}),
    (
        "DFlash2 over a pipeline",
        shape("RTX 3090", "RTX 3090", pp=2, partition=(32, 32)),
        {"aux-hidden-states-over-pp", "pp-batch-cap"},
        {"mtp-shared-embedding-pp", "last-stage-embedding"},
    ),
    (
        "MTP over a pipeline",
        with_mtp("RTX 3090", "RTX 3090", pp=2, partition=(32, 32)),
        {"mtp-shared-embedding-pp", "pp-batch-cap"},
        {"kv-group-size"},
    ),
    (
        "pipeline without drafter",
        without_drafter("RTX 3090", "RTX 3090", pp=2, partition=(32, 32)),
        {"last-stage-embedding"},
        {"pp-batch-cap"},
    ),
    ("quantized embedding", shape("RTX 5090", checkpoint="int4-fast"), {"quantized-embedding"}, set()),
    ("mended in 0.33", shape("RTX 3090"), set(), {"sampler-warmup-cuda"}),
    ("not yet in 0.32", shape("RTX 3090", vllm="0.32.0"), {"sampler-warmup-cuda"}, set()),
]


@pytest.mark.parametrize(("case", "engine", "needed", "unwanted"), PATCHES, ids=[case for case, *_ in PATCHES])
def test_an_engine_carries_the_patches_that_it_needs_and_not_these(
    case: str, engine: EngineShape, needed: set[str], unwanted: set[str]
) -> None:
    carried = set(rendered(engine).patches)
    assert needed <= carried
    assert not unwanted & carried


@pytest.mark.parametrize("version", ["0.33.0", "0.32.0"])
def test_every_patch_that_a_rule_can_name_is_in_the_series(version: str) -> None:
    series = {path.stem for path in (ROOT / "patches" / version).glob("*.patch")}
    named = set()
    for _, engine, _, _ in PATCHES:
        named |= set(rendered(replace(engine, vllm=version)).patches)
    assert named <= series


@pytest.mark.parametrize(
    ("name", "words"),
    [("RTX 3090", "290 W"), ("RTX 3090 Ti", "200 W"), ("RTX 5090", "400 W"), ("RTX 3060", "170 W")],
)
def test_power_advice_knows_the_model_from_its_siblings(name: str, words: str) -> None:
    named = replace(shape("RTX 3090"), cards=(card("RTX 3090", 0, name=f"NVIDIA GeForce {name}"),))
    texts = [reason.text for reason in rendered(named).reasons if reason.rule == "power-limit"]
    assert len(texts) == 1
    assert words in texts[0]
    assert f"RTX {name.removeprefix('RTX ')}:" in texts[0]


@pytest.mark.parametrize("name", ["RTX 5090 Laptop GPU", "RTX 3060 Ti", "RTX A6000"])
def test_power_advice_is_silent_about_other_cards(name: str) -> None:
    named = replace(shape("RTX 3090"), cards=(card("RTX 3090", 0, name=f"NVIDIA GeForce {name}"),))
    assert "power-limit" not in {reason.rule for reason in rendered(named).reasons}


def test_ids_are_unique_and_every_entry_is_complete() -> None:
    entries = [(one.id, one.when, one.because, one.source) for one in TABLE]
    entries += [(one.id, one.when, one.because, one.source) for one in LIMITS]
    ids = [entry[0] for entry in entries]
    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in ids)
    assert all(all(entry) for entry in entries)
    assert all(one.rule and one.source and one.why for one in LEFT_OUT)


def test_rules_set_nothing_but_what_their_documentation_says() -> None:
    declared = {rule.id: rule.sets for rule in TABLE}
    engines = [case[1] for case in VARIABLES] + [case[1] for case in ARGUMENTS] + [case[1] for case in PATCHES]
    for engine in engines:
        for reason in rendered(engine).reasons:
            assert {name.partition(".")[0] for name in reason.sets} <= set(declared[reason.rule]), reason.rule


@pytest.mark.parametrize(("card_name", "said"), [("H100", True), ("RTX 3090", False)])
def test_batches_with_drafts_are_explained_by_what_was_measured_on_that_silicon_alone(
    card_name: str, said: bool
) -> None:
    engine = rendered(with_mtp(card_name), Settings(workload="batch"))
    assert ("few-drafts-in-batches" in {reason.rule for reason in engine.reasons}) == said


def test_the_document_is_the_table() -> None:
    assert (ROOT / "docs" / "rules.md").read_text(encoding="utf-8") == document.text()
    for rule in TABLE:
        assert f"`{rule.id}`" in document.text()

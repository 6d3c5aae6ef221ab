"""What the user forces wins, is annotated, and is warned about where it is known to hurt."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.planner import plan
from qwenlab.planner.rules.overrides import unknown
from qwenlab.settings import Settings, load
from tests.planner.engines import rendered, shape, without_drafter
from tests.planner.machines import inventories

Args = dict[str, Any]

OVERRIDES: list[tuple[str, Args, Args]] = [
    # case, qwen_engine_args, arguments afterwards (None: not there)
    ("a number wins", {"max-num-seqs": 16}, {"max-num-seqs": 16}),
    ("underscores and dashes are forgiven", {"--max_num_seqs": 16}, {"max-num-seqs": 16}),
    ("none takes an argument out", {"sse-keep-alive-interval": None}, {"sse-keep-alive-interval": None}),
    (
        "false becomes a word that every version reads",
        {"enable-prefix-caching": False},
        {"no-enable-prefix-caching": True, "enable-prefix-caching": None},
    ),
    ("the newer spelling replaces the older", {"disable-prefix-caching": True}, {"enable-prefix-caching": None}),
    ("synchronous scheduling", {"async-scheduling": False}, {"no-async-scheduling": True, "async-scheduling": None}),
    (
        "JSON options are merged key by key",
        {"compilation-config": {"max_cudagraph_capture_size": 8}},
        {"compilation-config": {"max_cudagraph_capture_size": 8, "custom_ops": ["+rms_norm", "+silu_and_mul"]}},
    ),
]


@pytest.mark.parametrize(("case", "forced", "expected"), OVERRIDES, ids=[case for case, _, _ in OVERRIDES])
def test_the_users_arguments_win_and_are_annotated(case: str, forced: Args, expected: Args) -> None:
    engine = rendered(shape("RTX 3090"), Settings(engine_args=forced))
    assert {name: engine.args.get(name) for name in expected} == expected
    notes = [reason for reason in engine.reasons if reason.rule == "user-override"]
    assert len(notes) == len(forced)
    assert all("the plan had" in note.text for note in notes)


@pytest.mark.parametrize(
    "forced", [{"max_cudagraph_capture_size": 8}, {"cudagraph_capture_sizes": [1, 2]}], ids=["largest", "sizes"]
)
def test_of_two_ways_to_say_the_same_only_the_users_is_left(forced: Args) -> None:
    planned = shape("H100", checkpoint="fp8-channel")
    assert "cudagraph_capture_sizes" in rendered(planned, Settings()).args["compilation-config"]
    config = rendered(planned, Settings(engine_args={"compilation-config": forced})).args["compilation-config"]
    assert config == forced | {"custom_ops": ["+rms_norm", "+silu_and_mul"]}


@pytest.mark.parametrize(("forced", "seats"), [({"max_num_seqs": 3}, 3), ({"max-num-seqs": None}, 4), ({}, 4)])
def test_the_plan_counts_the_seats_that_the_engine_is_started_with(forced: Args, seats: int) -> None:
    assert rendered(shape("RTX 3090", max_num_seqs=4), Settings(engine_args=forced)).max_num_seqs == seats


def test_the_users_variables_win_in_every_process() -> None:
    pair = shape("RTX 4070 Ti SUPER", "RTX 5090", pp=2, partition=(13, 51), checkpoint="nvfp4")
    engine = rendered(pair, Settings(engine_env={"VLLM_DISABLED_KERNELS": "Mine", "NCCL_DEBUG": "INFO"}))
    assert engine.env["VLLM_DISABLED_KERNELS"] == "Mine"
    assert engine.env["NCCL_DEBUG"] == "INFO"
    assert all("VLLM_DISABLED_KERNELS" not in process.env for process in engine.processes)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        (Settings(engine_env={"VLLM_MARLIN_INPUT_DTYPE": ""}), "VLLM_MARLIN_INPUT_DTYPE"),
        (Settings(engine_env={"NCCL_SHM_USE_CUDA_MEMCPY": "1"}), "hung"),
        (Settings(engine_args={"kv-cache-dtype": "fp8_e5m2"}), "qwen_kv_cache_dtype plans with it"),
        (Settings(engine_args={"tool-call-parser": "hermes"}), "silently"),
        (Settings(engine_args={"trust-remote-code": True}), "repository"),
    ],
)
def test_forced_values_that_are_known_to_hurt_are_warned_about(settings: Settings, word: str) -> None:
    assert any(word in warning for warning in rendered(shape("RTX 3090"), settings).warnings)
    assert not any(word in warning for warning in rendered(shape("RTX 3090")).warnings)


def test_synchronous_scheduling_is_warned_about_where_it_kills_the_engine() -> None:
    forced = Settings(engine_args={"async-scheduling": False})
    drafting = shape("RTX 3090", "RTX 3090", pp=2, partition=(32, 32))
    plain = without_drafter("RTX 3090", "RTX 3090", pp=2, partition=(32, 32))
    words = "the synchronous scheduler asserts"
    assert any(words in warning for warning in rendered(drafting, forced).warnings)
    assert not any(words in warning for warning in rendered(plain, forced).warnings)
    assert not any(words in warning for warning in rendered(shape("RTX 3090"), forced).warnings)


@pytest.mark.parametrize(
    ("name", "warned"),
    [
        ("max-num-seq", ["no argument max-num-seq,", "did you mean max-num-seqs?"]),
        ("tensor_paralel_size", ["did you mean tensor-parallel-size?"]),
        ("zzyzx", ["no argument zzyzx,"]),
        ("max_num_seqs", []),
        ("no-enable-prefix-caching", []),
        ("compilation-config.mode", []),
        ("tool-call-parser", []),
    ],
)
def test_an_argument_that_vllm_does_not_have_is_warned_about_with_the_nearest(name: str, warned: list[str]) -> None:
    found = [
        warning
        for warning in rendered(shape("RTX 3090"), Settings(engine_args={name: "1"})).warnings
        if "has no argument" in warning
    ]
    assert len(found) == bool(warned)
    assert all(word in found[0] for word in warned)


@pytest.mark.parametrize("machine", ["1x3090", "5090+4070tisuper", "8xh100", "2x4090-wsl2"])
def test_every_argument_of_a_plan_is_one_that_vllm_has(machine: str) -> None:
    inventory = inventories()[machine]
    for workload in ("chat", "batch", "long", "edit"):
        for engine in plan(inventory, load({"qwen_workload": workload})).engines:
            used = [*engine.args, *(name for process in engine.processes for name in process.args)]
            assert [name for name in used if unknown(name)] == []

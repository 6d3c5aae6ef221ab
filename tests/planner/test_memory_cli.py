"""`python -m qwenlab memory`: the figures of the contract, units, defaults, refusals and wrong calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qwenlab.cli import main

KEYS = [
    "block_size",
    "page_bytes",
    "group_size",
    "blocks_per_request",
    "num_blocks",
    "pool_tokens",
    "gib_per_request",
    "boots",
    "refusal",
]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["memory", *arguments, "--json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


CASES = {
    "fp8, MTP, two cards (HyperQwen issue 68)": (
        "--kv-dtype fp8 --spec mtp --draft-tokens 3 --max-model-len 131072 --tp 2 --kv-bytes 2975129437",
        (832, 851_968, 17, 173, 205, 155_316, 2.333557),
    ),
    "bf16, DFlash2 (HyperQwen single-user)": (
        "--kv-dtype bfloat16 --spec dflash --draft-tokens 7 --max-model-len 65536 --tp 1 --kv-bytes 5583457484",
        (448, 1_835_008, 8, 363, 380, 68_605, 4.962891),
    ),
    "without the prefix cache": (
        "--kv-dtype bf16 --spec dflash --draft-tokens 7 --max-model-len 65536 --no-prefix-cache --kv-bytes 5583457484",
        (448, 1_835_008, 8, 357, 380, 69_758, 4.880859),
    ),
    "long blocks, synchronous": (
        "--kv-dtype bf16 --spec dflash --draft-tokens 15 --max-model-len 57344 --sync-scheduling --kv-bytes 5583457484",
        (480, 1_966_080, 8, 352, 354, 57_669, 5.156250),
    ),
    "int8 per token and head": (
        "--kv-dtype int8_per_token_head --spec dflash --draft-tokens 7 --max-model-len 131072 --kv-bytes 5583457484",
        (864, 1_824_768, 8, 367, 382, 136_429, 4.989578),
    ),
    "KVarN": (
        "--kv-dtype kvarn --spec dflash --draft-tokens 7 --max-model-len 245760 --kv-bytes 5261334938",
        (2176, 1_827_840, 8, 329, 359, 268_169, 4.480476),
    ),
    "no drafter, four cards (HyperQwen issue 135)": (
        "--kv-dtype fp8 --spec off --draft-tokens 0 --max-model-len 150000 --tp 4 --kv-bytes 17146314752",
        (800, 409_600, 16, 194, 2616, 2_022_680, 1.184082),
    ),
    "the unequal pair (dual-gpus-vllm)": (
        "--kv-dtype fp8 --spec dflash --draft-tokens 7 --max-model-len 262144 --tp 1 --partition 13,51 "
        "--batched-tokens 1024 --ssm-dtype float32 --grouping patched --kv-blocks 375",
        (1664, 3_407_872, 8, 374, 375, 262_844, 8.309082),
    ),
    "the same with a typed block": (
        "--kv-dtype fp8 --spec dflash --draft-tokens 7 --max-model-len 229376 --tp 1 --partition 21,43 "
        "--batched-tokens 1024 --ssm-dtype float32 --block-size 1648 --kv-blocks 420",
        (1648, 3_375_104, 8, 399, 420, 241_448, 7.525085),
    ),
    "stock groups (club-3090 dual-ultrafast)": (
        "--kv-dtype bfloat16 --spec dflash --draft-tokens 7 --max-model-len 204800 --tp 2 --batched-tokens 8192 "
        "--ssm-dtype float32 --grouping stock --kv-blocks 1146",
        (832, 1_703_936, 5, 1102, 1146, 212_977, 8.743896),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_published_pools_come_out_of_the_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, figures = CASES[name]
    answer = ask(capsys, *arguments.split())
    assert list(answer) == KEYS
    assert tuple(answer.values()) == (*figures, True, None)


@pytest.mark.parametrize(
    ("written", "in_bytes"),
    [("5.2GiB", 5_583_457_484), ("9GB", 9_000_000_000), ("9e9", 9_000_000_000), ("9_000_000_000", 9_000_000_000)],
)
def test_sizes_may_carry_a_unit(written: str, in_bytes: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "--kv-bytes", written) == ask(capsys, "--kv-bytes", str(in_bytes))


@pytest.mark.parametrize(("spec", "tokens"), [("mtp", "3"), ("dflash", "7")])
def test_draft_tokens_default_to_the_usual_depth(spec: str, tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    implicit = ask(capsys, "--spec", spec, "--kv-blocks", "500")
    assert implicit == ask(capsys, "--spec", spec, "--draft-tokens", tokens, "--kv-blocks", "500")


def test_the_release_is_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    hopper = ("--sm", "9.0", "--kv-blocks", "500")
    newest, before = ask(capsys, *hopper), ask(capsys, *hopper, "--vllm", "0.32.0")
    assert newest["block_size"] == 832
    assert before["block_size"] == 800


def test_a_pool_that_vllm_would_refuse_is_answered_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["memory", "--kv-dtype", "fp8", "--max-model-len", "150000", "--kv-bytes", "4.7GiB", "--json"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["gib_per_request"] == pytest.approx(4.736, abs=0.001)
    assert answer["boots"] is False
    assert "148,000 tokens" in answer["refusal"]
    assert "would refuse" in err
    assert "148,000 tokens" in err


def test_a_person_reads_blocks_flag_and_stages(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "--spec dflash --ssm-dtype float32 --partition 13,51 --batched-tokens 1024 --kv-blocks 375"
    assert main(["memory", *arguments.split()]) == 0
    out = capsys.readouterr().out
    for words in ("1,664 tokens", "--block-size", "262,844 tokens", "stage 0", "stage 1", "8.31 GiB"):
        assert words in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kv-blocks", "9", "--tp", "3"], "possible: [1, 2, 4, 8]"),
        (["--kv-blocks", "9", "--kv-dtype", "fp9"], "did you mean 'fp8'"),
        (["--kv-blocks", "9", "--spec", "off", "--draft-tokens", "3"], "needs --spec"),
        (["--kv-blocks", "9", "--spec", "mtp", "--draft-tokens", "0"], "at least one draft token"),
        (["--kv-blocks", "9", "--partition", "13,50"], "share out 64 layers"),
        (["--kv-blocks", "9", "--vllm", "0.19.1"], "is the oldest"),
        (["--kv-blocks", "9", "--vllm", "latest"], "is not a vLLM version"),
        (["--kv-bytes", "five"], "no size"),
        (["--kv-blocks", "9", "--sm", "ada"], "no compute capability"),
        ([], "one of the arguments --kv-bytes --kv-blocks is required"),
        (["--kv-blocks", "9", "--kv-bytes", "9GB"], "not allowed with"),
        (["--kv-bytes", "5.2"], "write 5.2GiB"),
        (["--kv-blocks", "9", "--vllm", "0.24.9"], "0.25 is the oldest"),
        (["--kv-blocks", "9", "--block-size", "16"], "--block-size 16 has no effect"),
        (["--kv-blocks", "9", "--drafter", "dflash2"], "no effect without --spec dflash"),
        (["--kv-blocks", "9", "--spec", "mtp", "--drafter-backend", "FLASH_ATTN"], "no effect without --spec dflash"),
        (
            ["--kv-blocks", "9", "--spec", "dflash", "--vllm", "0.29.0", "--drafter-backend", "FLASH_ATTN"],
            "no effect on the blocks of vLLM 0.29.0",
        ),
        (
            ["--kv-blocks", "9", "--spec", "dflash", "--kv-dtype", "kvarn", "--drafter-backend", "FLASH_ATTN"],
            "its blocks are fixed",
        ),
    ],
)
def test_a_wrong_call_says_what_is_wrong(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", *arguments]) == 64
    assert words in capsys.readouterr().err


def test_help_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--kv-dtype", "--spec", "--draft-tokens", "--max-model-len", "--tp", "--partition", "--grouping"):
        assert option in out

"""The memory model plans as vLLM's own code does: recorded answers of seven releases, and two releases asked anew."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from qwenlab.planner.memory import Kind, KvConfig, layout_of, pool_of
from tests.patches.trees import patched
from tests.vllm_env import VERSIONS, VllmEnvironment, environment

HERE = Path(__file__).parent
ORACLE = HERE / "vllm_pool_oracle.py"
FIELDS = ("block_size", "page_bytes", "groups", "group_blocks", "blocks_per_request", "pool_tokens", "slots", "boots")
RELEASES = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")


@cache
def recorded() -> dict[str, Any]:
    """Cases, and what each release's planning functions answered (see vllm_pool_oracle.py)."""
    loaded: dict[str, Any] = json.loads((HERE / "data" / "vllm_pools.json").read_text(encoding="utf-8"))
    return loaded


def config_of(case: dict[str, Any], version: str, *, patched: bool = False) -> KvConfig:
    """The case as a configuration of the model."""
    fields = {name: value for name, value in case.items() if name != "blocks"}
    return KvConfig(
        **fields | {"partition": tuple(case["partition"])},
        drafter="dflash2" if case["method"] == "dflash" else None,
        vllm=version,
        grouping_patched=patched,
    )


def ours(case: dict[str, Any], version: str, *, patched: bool = False) -> dict[str, Any]:
    """Our figures for a case, with vLLM's own block size where the case passes none."""
    config = config_of(case, version, patched=patched)
    config = replace(config, block_size=config.block_size or layout_of(config).own_block_size)
    pool = pool_of(config, blocks=case["blocks"])
    first = pool.layouts[0]
    return {
        "block_size": first.block_size,
        "page_bytes": first.page_bytes,
        "groups": len(first.groups),
        "group_blocks": sorted({group.block_size for group in first.groups if group.kind is not Kind.GDN}),
        "blocks_per_request": first.blocks_per_request,
        "pool_tokens": pool.pool_tokens,
        "slots": [layout.slots for layout in pool.layouts],
        "boots": pool.refusal is None,
    }


@pytest.mark.parametrize("version", RELEASES)
def test_recorded_answers_of_a_release_are_reproduced(version: str) -> None:
    answers = recorded()["answers"][version]
    assert len(answers) == len(recorded()["cases"]) >= 120
    for case, answer in zip(recorded()["cases"], answers, strict=True):
        assert ours(case, version) == dict(zip(FIELDS, answer, strict=True)), case


def test_recorded_releases_differ_where_their_rules_do() -> None:
    answers = recorded()["answers"]
    pairs = [("0.27.1", "0.28.0"), ("0.28.0", "0.29.0"), ("0.29.0", "0.30.0"), ("0.32.0", "0.33.0")]
    assert all(answers[before] != answers[after] for before, after in pairs)
    assert answers["0.30.0"] == answers["0.31.0"] == answers["0.32.0"]


def planned_cases() -> list[dict[str, Any]]:
    """Configurations as a plan passes them: the block size that the model chose goes to vLLM as `--block-size`."""
    cases = []
    for dtype, method, tokens, ssm in (
        ("fp8", "dflash", 7, "float16"),
        ("fp8", "dflash", 7, "float32"),
        ("fp8", "mtp", 3, "float16"),
        ("int8_per_token_head", "dflash", 7, "bfloat16"),
    ):
        for tp in (1, 2, 4, 8):
            for flashinfer in (False, True):
                case = {
                    "tp": tp,
                    "draft_tokens": tokens,
                    "ssm_dtype": ssm,
                    "partition": [64] if tp > 1 else [21, 43],
                    "async_scheduling": True,
                    "in_flight_capped": True,
                    "block_size": None,
                    "kv_dtype": dtype,
                    "prefix_cache": True,
                    "blocks": 700,
                    "max_model_len": 131_072,
                    "method": method,
                    "max_num_batched_tokens": 2048,
                    "drafter_backend": None,
                    "gdn_flashinfer": flashinfer,
                }
                cases.append(case)
    return cases


def answers_of(release: VllmEnvironment, cases: list[dict[str, Any]], first: list[Path]) -> list[dict[str, Any]]:
    done = release.run(
        [str(ORACLE)],
        extra={"VLLM_CONFIGURE_LOGGING": "0", "CUDA_VISIBLE_DEVICES": ""},
        first=first,
        stdin=json.dumps(cases),
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return [{**answer, "boots": answer["refused"] is None} for answer in answers]


@pytest.mark.engine
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_patched", [False, True], ids=["stock", "patched"])
def test_the_release_itself_gives_the_same_answers(version: str, is_patched: bool, tmp_path: Path) -> None:
    planned = planned_cases()
    for case in planned:
        case["block_size"] = layout_of(config_of(case, version, patched=is_patched)).block_size
    cases = recorded()["cases"] + planned
    first = [patched(version, tmp_path).folder] if is_patched else []
    answers = answers_of(environment(version), cases, first)
    for case, answer in zip(cases, answers, strict=True):
        assert ours(case, version, patched=is_patched) == {field: answer[field] for field in FIELDS}, case

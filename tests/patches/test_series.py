"""The series as data: which plan needs what, what the manifests hold, and the generated page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qwenlab.patches import document
from qwenlab.patches.applier import parse
from qwenlab.patches.cli import main
from qwenlab.patches.job import make_job
from qwenlab.patches.manifest import diff, file_digests, load, releases
from qwenlab.patches.needs import UnknownPatch, chosen, needed, ordered
from qwenlab.planner.catalogue import checkpoints
from qwenlab.planner.plan import Checkpoint, EnginePlan, HostPlan, Speculation, Workload
from qwenlab.planner.rules.patches import RULES


def engine(**changes: Any) -> EnginePlan:
    values: dict[str, Any] = {
        "name": "main",
        "port": 8000,
        "gpus": (),
        "checkpoint": Checkpoint(repo="some/model", revision="0" * 40, format="fp8"),
        "kv_cache_dtype": "fp8",
        "attention_backend": None,
        "max_model_len": 1024,
        "max_num_seqs": 2,
        "args": {},
        "env": {},
    }
    return EnginePlan(**{**values, **changes})


def host_plan(vllm: str, *engines: EnginePlan) -> HostPlan:
    return HostPlan(status="planned", workload=Workload.CHAT, vllm=vllm, engines=engines)


DFLASH, MTP = Speculation(method="dflash", tokens=7), Speculation(method="mtp", tokens=3)
TOOLS = {"tool-call-close-truncated", "tool-call-nested-parameter-tag"}
PACKED = next(
    Checkpoint(repo=spec.repo, revision="0" * 40, format=spec.format)
    for spec in checkpoints().values()
    if "quantized-embedding" in spec.patches
)
NEEDS: dict[str, tuple[dict[str, Any], bool, set[str]]] = {
    "one card, no key, nothing special": ({}, False, set()),
    "a key": ({}, True, {"auth-deny-default"}),
    "tool calls": ({"args": {"enable-auto-tool-choice": True}}, False, TOOLS),
    "a pinned pool": ({"args": {"kv-cache-memory-bytes": 1}}, False, {"pinned-pool-release"}),
    "MTP on one card": ({"speculation": MTP}, False, {"gdn-state-bounds"}),
    "DFlash2 on one card": (
        {"speculation": DFLASH},
        False,
        {"kv-group-size", "dflash-fixed-block", "gdn-state-bounds"},
    ),
    "a pipeline": ({"pp": 2, "args": {"language-model-only": True}}, False, {"last-stage-embedding"}),
    "MTP over a pipeline": (
        {"pp": 2, "speculation": MTP},
        False,
        {"mtp-shared-embedding-pp", "pp-batch-cap", "last-stage-embedding", "gdn-state-bounds"},
    ),
    "DFlash2 over a pipeline": (
        {"pp": 2, "speculation": DFLASH},
        False,
        {
            "aux-hidden-states-over-pp",
            "kv-group-size",
            "dflash-fixed-block",
            "pp-batch-cap",
            "last-stage-embedding",
            "gdn-state-bounds",
        },
    ),
    "block FP8 on Hopper, which a planning rule knows": (
        {"patches": ("cutlass-rows-sm90",)},
        False,
        {"cutlass-rows-sm90"},
    ),
    "a packed embedding": ({"checkpoint": PACKED}, False, {"quantized-embedding"}),
}


@pytest.mark.parametrize(("changes", "keyed", "expected"), NEEDS.values(), ids=NEEDS)
def test_a_plan_gets_what_it_needs_and_no_more(changes: dict[str, Any], keyed: bool, expected: set[str]) -> None:
    assert set(needed(load("0.33.0"), engine(**changes), keyed=keyed)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"pp": 2}, {"vision-tower-first-stage"}),
        ({"pp": 2, "args": {"language-model-only": True}}, set()),
        ({"speculation": MTP}, {"sampler-warmup-cuda"}),
        ({"args": {"kv-offloading-size": 8}}, {"offload-lru-tail-first"}),
    ],
)
def test_the_older_release_needs_more(changes: dict[str, Any], expected: set[str]) -> None:
    added = set(load("0.32.0").ids) - set(load("0.33.0").ids)
    assert set(needed(load("0.32.0"), engine(**changes), keyed=False)) & added == expected


def test_a_release_carries_what_any_of_its_engines_needs_in_series_order() -> None:
    plan = host_plan("0.33.0", engine(speculation=DFLASH), engine(name="second", patches=("auth-deny-default",)))
    found = chosen(load("0.33.0"), plan, keyed=False)
    assert found == ("kv-group-size", "auth-deny-default", "dflash-fixed-block", "gdn-state-bounds")


def test_every_patch_that_a_planning_rule_names_is_in_a_series() -> None:
    known = {name for vllm in releases() for name in load(vllm).ids}
    named = {name for rule in RULES for name in rule.sets} - {"additional-config"}
    assert named == known - {"offload-lru-tail-first"}, "no rule plans a CPU tier; it is for those who set one"


def test_a_plan_that_names_an_unknown_patch_is_not_deployed() -> None:
    plan = host_plan("0.33.0", engine(patches=("kv-dtype-of-another",)))
    with pytest.raises(UnknownPatch, match="kv-dtype-of-another"):
        chosen(load("0.33.0"), plan, keyed=False)


def test_a_plan_that_needs_none_leaves_the_release_untouched() -> None:
    assert chosen(load("0.33.0"), host_plan("0.33.0", engine()), keyed=False) == ()


def test_the_jobs_digest_covers_the_choice_and_not_the_order_it_is_named_in() -> None:
    one, two = make_job("0.33.0", ["kv-group-size"]), make_job("0.33.0", ["kv-group-size", "auth-deny-default"])
    assert one["digest"] != two["digest"]
    assert two["digest"] == make_job("0.33.0", ["auth-deny-default", "kv-group-size"])["digest"]


@pytest.mark.parametrize("vllm", releases())
def test_manifest_and_diffs_belong_together(vllm: str) -> None:
    series = load(vllm)
    assert ordered(series, series.ids) == series.ids
    digests = file_digests(vllm)
    for patch in series.patches:
        files = parse(diff(vllm, patch), patch.id)
        assert sorted(file.path for file in files) == sorted(patch.files)
        assert all(patch.id in digests[path].patched for path in patch.files)
        for test in patch.tests:
            assert (Path(__file__).parents[2] / test.partition("::")[0]).is_file()


def test_the_page_is_generated_from_the_manifests() -> None:
    assert document.PATH.read_text() == document.render(), "run `python -m qwenlab patches document --write`"


@pytest.mark.parametrize("vllm", releases())
def test_list_and_explain_know_every_patch(vllm: str, capsys: pytest.CaptureFixture[str]) -> None:
    for patch in load(vllm).patches:
        assert main(["explain", patch.id, "--vllm", vllm]) == 0
        assert patch.breaks_without in capsys.readouterr().out
    assert main(["list", "--vllm", vllm]) == 0
    assert main(["explain", "no-such-patch"]) == 1
    assert "no patch 'no-such-patch'" in capsys.readouterr().err

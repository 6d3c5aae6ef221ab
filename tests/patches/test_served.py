"""The patched engine answers as one card without speculation does, on every layout that the runner allows.

Tiny models with random weights, vLLM's V2 runner, Triton's interpreter; see `v2_on_cpu` and `make_checkpoints`. One
engine a layout and way of speculating, asked everything while it is up.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.patches.conftest import TreeOf
from tests.patches.served import KEY, Answer, Server, free_port, serve

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TOKENS = 64
PROMPTS = ((5, 6, 7, 8, 9, 10), (101, 22, 303, 44, 505, 66, 77, 88, 99, 11, 12, 13))
LONG = tuple((number * 37) % 900 + 20 for number in range(700))  # more than the cache's block of 512 tokens
# Two tokens may change places by rounding (bfloat16, logits up to 15) if they are this near to each other, in nats:
SAME_SUMS = 0.1  # over a pipeline every sum is as on one card
OTHER_SUMS = 1.5  # tensor parallel splits sums; without drafts the CPU runs another recurrent kernel than with them
DRAFTS = {"none": 0, "mtp": 2, "dflash": 7}
PIPELINE = ("--pipeline-parallel-size", "2")


@dataclass(frozen=True)
class Layout:
    """How an engine is spread: common arguments, those of each node, environment, and what rounding may do."""

    arguments: tuple[str, ...] = ()
    nodes: tuple[tuple[str, ...], ...] = ((),)
    environment: dict[str, str] = field(default_factory=dict)
    tie: float = SAME_SUMS


LAYOUTS = {
    "one": Layout(tie=OTHER_SUMS),
    "tensor": Layout(("--tensor-parallel-size", "2"), tie=OTHER_SUMS),
    "pipeline": Layout(PIPELINE),
    "uneven pipeline": Layout(PIPELINE, environment={"VLLM_PP_LAYER_PARTITION": "5,3"}),
    "two nodes": Layout(
        (*PIPELINE, "--nnodes", "2", "--master-addr", "127.0.0.1"),
        (("--node-rank", "0"), ("--node-rank", "1", "--headless")),
    ),
}


@dataclass(frozen=True)
class Visit:
    """What an engine said while it was up."""

    answers: tuple[Answer, ...]
    wrong: tuple[str, ...]
    accepted: float
    fresh: Answer
    cached: Answer
    open_routes: tuple[str, ...]
    routes: int


Visits = Callable[[str, str, str], Visit]


@pytest.fixture(scope="module")
def visits(tree_of: TreeOf, checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Visits:
    """The visit to an engine by release, layout and way of speculating; each engine is started once."""

    @functools.cache
    def visit(version: str, layout: str, method: str) -> Visit:
        spread = LAYOUTS[layout]
        arguments = [*spread.arguments, *speculation(version, method, checkpoints)]
        if len(spread.nodes) > 1:
            arguments += ["--master-port", str(free_port())]
        reference: tuple[Answer, ...] = ()
        if layout != "one":
            reference = visit(version, "one", method).answers
        elif method != "none":
            reference = visit(version, "one", "none").answers
        folder = tmp_path_factory.mktemp("served")
        tree = tree_of(version, "patched")
        with serve(tree, checkpoints, folder, *arguments, nodes=spread.nodes, extra=spread.environment) as server:
            return _ask(server, reference, spread.tie)

    return visit


def speculation(version: str, method: str, checkpoints: Path) -> list[str]:
    """Arguments for a way of speculating; at 0.32.0 DFlash finds a cached prefix only with the drop switched off."""
    config: dict[str, Any] = {"method": method, "num_speculative_tokens": DRAFTS[method]}
    if method == "dflash":
        config["model"] = str(checkpoints / "drafter")
        if version == "0.32.0":
            config["disable_eagle_block_drop"] = True
    return [] if method == "none" else ["--speculative-config", json.dumps(config)]


def _ask(server: Server, reference: tuple[Answer, ...], tie: float) -> Visit:
    answers = tuple(server.ask(prompt, TOKENS) for prompt in PROMPTS)
    known = zip(PROMPTS, answers, reference, strict=True) if reference else ()
    wrong = [
        line
        for prompt, answer, told in known
        if answer.tokens != told.tokens
        for line in server.follow(prompt, told, tie)
    ]
    fresh, cached = server.ask(LONG, 16), server.ask(LONG, 16)
    routes = [(path, method.upper()) for path, item in _routes(server).items() for method in item]
    return Visit(
        answers=answers,
        wrong=tuple(wrong),
        accepted=server.metric("vllm:spec_decode_num_accepted_tokens_total"),
        fresh=fresh,
        cached=cached,
        open_routes=tuple(sorted({path for path, method in routes if server.status(path, method=method) != 401})),
        routes=len(routes),
    )


def _routes(server: Server) -> dict[str, Any]:
    paths: dict[str, Any] = server.request("/openapi.json", key=KEY)["paths"]
    return {**paths, "/metrics": {"get": {}}, "/openapi.json": {"get": {}}, "/docs": {"get": {}}, "/": {"get": {}}}


ALL = [("0.33.0", layout, method) for layout in LAYOUTS for method in DRAFTS]
OLDER = [
    ("0.32.0", "one", "none"),
    ("0.32.0", "one", "mtp"),
    ("0.32.0", "one", "dflash"),
    ("0.32.0", "pipeline", "mtp"),
    ("0.32.0", "pipeline", "dflash"),
]
ENGINES = [pytest.param(*engine, id="-".join(engine).replace(" ", "-")) for engine in (*ALL, *OLDER)]
DRAFTING = [engine for engine in ENGINES if engine.values[2] != "none"]


@pytest.mark.parametrize(("version", "layout", "method"), ENGINES)
def test_greedy_answers_are_those_of_one_card_and_that_one_s_those_without_drafts(
    version: str, layout: str, method: str, visits: Visits
) -> None:
    visit = visits(version, layout, method)
    assert all(len(answer.tokens) == TOKENS for answer in visit.answers)
    assert not visit.wrong


@pytest.mark.parametrize(("version", "layout", "method"), DRAFTING)
def test_some_drafts_are_accepted(version: str, layout: str, method: str, visits: Visits) -> None:
    assert visits(version, layout, method).accepted > 0


@pytest.mark.parametrize(("version", "layout", "method"), DRAFTING)
def test_a_cached_prefix_gives_the_fresh_answer(version: str, layout: str, method: str, visits: Visits) -> None:
    visit = visits(version, layout, method)
    assert visit.fresh.cached == 0
    assert visit.cached.cached >= 512
    assert visit.cached.tokens == visit.fresh.tokens


@pytest.mark.parametrize("version", ["0.33.0", "0.32.0"])
def test_without_the_key_only_health_answers(version: str, visits: Visits) -> None:
    visit = visits(version, "one", "none")
    assert visit.routes > 20
    assert visit.open_routes == ("/health",)


@pytest.mark.parametrize("version", ["0.33.0", "0.32.0"])
def test_dflash_over_a_pipeline_is_refused_by_stock(
    version: str, tree_of: TreeOf, checkpoints: Path, tmp_path: Path
) -> None:
    arguments = [*PIPELINE, *speculation(version, "dflash", checkpoints)]
    with (
        pytest.raises(RuntimeError, match="does not support dflash with pipeline parallelism"),
        serve(tree_of(version, "stock"), checkpoints, tmp_path, *arguments),
    ):
        pytest.fail("stock vLLM came up")

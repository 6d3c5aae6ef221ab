"""The patched engine answers as one card without speculation does, on every layout that the runner allows.

Tiny models with random weights, vLLM's V2 runner, Triton's interpreter; see `v2_on_cpu` and `make_checkpoints`. One
engine a layout and way of speculating, asked everything while it is up.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.patches.conftest import TreeOf
from tests.patches.layouts import ALL, LAST_BLOCK_DROPPED, LAYOUTS, OTHER_SUMS, PIPELINE, VERSIONS, speculation
from tests.patches.make_checkpoints import SPOKEN
from tests.patches.served import KEY, V2_ON_CPU, Answer, Departure, Server, serve
from tests.ports import free_port
from tests.vllm_env import environment

pytestmark = [pytest.mark.engine, pytest.mark.slow]

TOKENS = 64
SHORT = (101, 22, 303, 44, 505, 66, 77, 88, 99, 11, 12, 13)
LONG = tuple((number * 37) % 900 + 20 for number in range(700))  # more than the cache's block of 512 tokens
ASKED = ((SHORT, TOKENS), (LONG, 16))  # prompts, and how many tokens each is continued by


@dataclass(frozen=True)
class Visit:
    """What an engine said while it was up: to `ASKED`, and to the long prompt once more."""

    answers: tuple[Answer, ...]
    wrong: tuple[Departure, ...]
    accepted: float
    cached: Answer
    open_routes: tuple[str, ...]
    routes: int


Engine = tuple[str, str, str]
Visits = Callable[[str, str, str], Visit]


@pytest.fixture(scope="module")
def visits(tree_of: TreeOf, checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Visits:
    """The visit to an engine by release, layout and way of speculating; each engine is started once."""

    @functools.cache
    def outcome(version: str, layout: str, method: str) -> Visit | Exception:  # a failing engine also only once
        try:
            return started(version, layout, method)
        except Exception as error:
            return error

    def visit(version: str, layout: str, method: str) -> Visit:
        found = outcome(version, layout, method)
        if isinstance(found, Exception):
            raise found
        return found

    def started(version: str, layout: str, method: str) -> Visit:
        spread = LAYOUTS[layout]
        arguments = [*spread.arguments, *speculation(version, layout, method, checkpoints)]
        if len(spread.nodes) > 1:
            arguments += ["--master-port", str(free_port())]
        reference: tuple[Answer, ...] = ()
        if layout != "one" and not spread.other_weights:
            reference = visit(version, "one", method).answers
        elif method != "none":
            reference = visit(version, layout, "none").answers
        folder = tmp_path_factory.mktemp("served")
        tree = tree_of(version, "patched")
        with serve(tree, checkpoints, folder, *arguments, nodes=spread.nodes, extra=spread.environment) as server:
            return _ask(server, reference, spread.tie)

    return visit


def _ask(server: Server, reference: tuple[Answer, ...], tie: float) -> Visit:
    answers = tuple(server.ask(prompt, count) for prompt, count in ASKED)
    cached = server.ask(LONG, 16)
    known = zip(ASKED, answers, reference, strict=True) if reference else ()
    departures = [
        one
        for (prompt, _), answer, told in known
        if answer.tokens != told.tokens
        for one in server.follow(prompt, told)
    ]
    accepted, drafted = (server.metric(f"vllm:spec_decode_num_{what}_tokens_total") for what in ("accepted", "draft"))
    routes = [(path, method.upper()) for path, item in _routes(server).items() for method in item]
    print(f"{accepted:.0f} of {drafted:.0f} draft tokens accepted; departures: {departures}")
    return Visit(
        answers=answers,
        wrong=tuple(one for one in departures if one.gap >= tie),
        accepted=accepted,
        cached=cached,
        open_routes=tuple(sorted({path for path, method in routes if server.status(path, method=method) != 401})),
        routes=len(routes),
    )


def _routes(server: Server) -> dict[str, Any]:
    paths: dict[str, Any] = server.request("/openapi.json", key=KEY)["paths"]
    return {**paths, "/metrics": {"get": {}}, "/openapi.json": {"get": {}}, "/docs": {"get": {}}, "/": {"get": {}}}


ENGINES = [pytest.param(engine, id="-".join(engine).replace(" ", "-")) for engine in ALL]


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Release, layout and way of speculating; tests of one engine run one after the other."""
    found: Engine = request.param
    return found


def test_greedy_answers_are_those_of_one_card_and_that_one_s_those_without_drafts(
    engine: Engine, visits: Visits
) -> None:
    visit = visits(*engine)
    assert [len(answer.tokens) for answer in visit.answers] == [count for _, count in ASKED]
    assert not visit.wrong


def test_some_drafts_are_accepted(engine: Engine, visits: Visits) -> None:
    assert (visits(*engine).accepted > 0) == (engine[2] != "none")


def test_a_cached_prefix_gives_the_fresh_answer(engine: Engine, visits: Visits) -> None:
    visit = visits(*engine)
    fresh = visit.answers[-1]
    assert fresh.cached == 0
    assert (visit.cached.cached >= 512) == ((engine[0], engine[2]) not in LAST_BLOCK_DROPPED)
    spread = LAYOUTS[engine[1]]
    places = zip(visit.cached.tokens, fresh.tokens, fresh.gaps, strict=True)
    lead = next((gap for cached, expected, gap in places if cached != expected), None)
    # 8-bit inputs of one chunk round otherwise than those of two; else not even a tie may turn.
    assert lead is None or (spread.other_weights and lead < spread.tie)


def test_what_rounding_may_do_is_what_bfloat16_does_to_this_model(checkpoints: Path) -> None:
    generator = random.Random(1)
    asked = {
        "checkpoint": str(checkpoints / "target"),
        "tokens": [*SHORT, *(generator.choice(SPOKEN) for _ in range(TOKENS))],
        "spoken": list(SPOKEN),
    }
    script = Path(__file__).with_name("rounding.py")
    extra = {"CUDA_VISIBLE_DEVICES": ""}
    told = environment(VERSIONS[0]).run([str(script)], stdin=json.dumps(asked), extra=extra, first=[V2_ON_CPU])
    assert told.returncode == 0, told.stderr[-2000:]
    moved = float(told.stdout.splitlines()[-1])
    assert OTHER_SUMS / 5 < moved <= OTHER_SUMS / 4


@pytest.mark.parametrize("version", VERSIONS)
def test_without_the_key_only_health_answers(version: str, visits: Visits) -> None:
    visit = visits(version, "one", "none")
    assert visit.routes > 20
    assert visit.open_routes == ("/health",)


@pytest.mark.parametrize("version", VERSIONS)
def test_dflash_over_a_pipeline_is_refused_by_stock(
    version: str, tree_of: TreeOf, checkpoints: Path, tmp_path: Path
) -> None:
    arguments = [*PIPELINE, *speculation(version, "pipeline", "dflash", checkpoints)]
    with (
        pytest.raises(RuntimeError, match="does not support dflash with pipeline parallelism"),
        serve(tree_of(version, "stock"), checkpoints, tmp_path, *arguments),
    ):
        pytest.fail("stock vLLM came up")

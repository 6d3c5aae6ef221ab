"""Every patch is needed and enough: its probe fails on the released vLLM, by these words, and holds on the patched."""

from __future__ import annotations

import pytest

from qwenlab.patches.manifest import load, releases
from tests.patches.conftest import Outcomes

pytestmark = pytest.mark.engine

WITHOUT = {
    "aux-hidden-states-over-pp": "does not support dflash with pipeline parallelism",
    "kv-group-size": "came out in groups of [5, 5, 5",
    "quantized-embedding": "the embedding has weight, no weight_packed",
    "auth-deny-default": "open without a key: /metrics, /tokenize",
    "mtp-shared-embedding-pp": "the last stage keeps a second copy of the embedding",
    "pp-batch-cap": "3 batches in flight over two stages",
    "pinned-pool-release": "what happened: profile, pool",
    "tool-call-close-truncated": 'the client holds \'{"path": "a.py", "text": ',
    "tool-call-nested-parameter-tag": "the call came out as {'path': 'a.xml', 'text': 'x ', 'b': 'y'}",
    "dflash-fixed-block": "request length to block constant: {1: 16, 8: 16, 9: 32",
    "last-stage-embedding": "the last stage holds an embedding that nobody reads",
    "vision-tower-first-stage": "a later stage holds 6 parameters of the tower",
    "sampler-warmup-cuda": "top-k and top-p are not registered for warm-up on CUDA with a drafter",
    "offload-lru-tail-first": "the tier serves nothing",
    "cutlass-rows-sm90": "for 8065 rows the kernel is given 8065",
    "gdn-state-bounds": "another request's state",
}
PATCHES = [
    pytest.param(version, patch.id, id=f"{version}-{patch.id}")
    for version in releases()
    for patch in load(version).patches
]


@pytest.mark.parametrize(("version", "patch"), PATCHES)
def test_stock_fails(version: str, patch: str, outcomes: Outcomes) -> None:
    outcome = outcomes(version, "stock")[patch]
    assert outcome.startswith("fails: "), outcome
    assert WITHOUT[patch] in outcome


@pytest.mark.parametrize(("version", "patch"), PATCHES)
def test_patched_passes(version: str, patch: str, outcomes: Outcomes) -> None:
    assert outcomes(version, "patched")[patch] == "holds"

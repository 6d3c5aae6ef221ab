"""The format that a plan counts on is held against config.json before anything large is fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qwenlab.planner.catalogue import checkpoints, drafter_checkpoints
from qwenlab.remote.checkpoint.listing import QUANTIZATION, check_format
from qwenlab.remote.checkpoint.words import FetchError


def packed(bits: int, method: str = "compressed-tensors") -> dict[str, Any]:
    """A quantization with packed integers."""
    return {"quant_method": method, "config_groups": {"group_0": {"weights": {"num_bits": bits}}}}


def test_every_format_of_the_catalogue_is_known() -> None:
    formats = {one.format for one in checkpoints().values()} | {one.format for one in drafter_checkpoints().values()}
    assert formats <= set(QUANTIZATION)


@pytest.mark.parametrize(
    ("wanted", "quantization", "fits"),
    [
        ("int4-autoround", packed(4), True),
        ("int4-autoround", {"quant_method": "auto-round", "bits": 4}, True),
        ("int4-autoround", packed(8), False),
        ("int4-autoround", None, False),
        ("w8a16", packed(8), True),
        ("w8a16", packed(4), False),
        ("fp8", {"quant_method": "fp8"}, True),
        ("fp8", packed(4), False),
        ("nvfp4", {"quant_method": "modelopt"}, True),
        ("nvfp4", {"quant_method": "awq", "bits": 4}, False),
        ("bf16", None, True),
        ("bf16", packed(4), False),
        (None, packed(3), True),
    ],
)
def test_method_and_bits_must_be_those_of_the_plan(
    tmp_path: Path, wanted: str | None, quantization: dict[str, Any] | None, fits: bool
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"quantization_config": quantization} if quantization else {}))
    if fits:
        check_format(config, wanted, "a/b")
        return
    with pytest.raises(FetchError, match=f"not in the format '{wanted}' that the plan counts on"):
        check_format(config, wanted, "a/b")


def test_a_repository_without_a_config_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"a/b is no checkpoint"):
        check_format(tmp_path / "config.json", "bf16", "a/b")

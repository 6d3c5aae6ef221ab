"""The live peer test, run as on a host: its own processes, its limit, its verdicts. libcuda is a stand-in in C."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import FactProcessError

from qwenlab.facts import peer_test
from qwenlab.facts.peer_verdicts import PeerTest, PeerVerdict

A, B = "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"
Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return folder


@pytest.fixture
def run(libcuda: Path) -> Run:
    def start(mode: str, *arguments: str, uuids: tuple[str, ...] = (A, B)) -> list[dict[str, Any]]:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libcuda), "FAKE_CUDA": mode}
        done = subprocess.run(
            [sys.executable, "-I", peer_test.__file__, *arguments, *uuids],
            env=environment, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return start


@pytest.mark.parametrize(
    ("mode", "verdict", "detail"),
    [
        ("work", "ok", ""),
        ("refuse", "refused", "grants no peer access"),
        ("corrupt", "wrong", "not the values that were sent"),
        ("fail", "failed", "cuCtxEnablePeerAccess: CUDA_ERROR_UNKNOWN"),
        ("no-driver", "untested", "cuInit: CUDA_ERROR_NO_DEVICE"),
        ("full", "untested", "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"),
        ("crash", "failed", "exit -6"),
    ],
)
def test_a_pair_gets_the_verdict_of_what_its_copies_did(run: Run, mode: str, verdict: str, detail: str) -> None:
    (found,) = run(mode)
    assert (found["a"], found["b"], found["verdict"]) == (A, B, verdict)
    assert detail in found["detail"]
    assert ("gb_s" in found) == (verdict == "ok")


def test_a_hanging_pair_is_killed_and_the_others_are_tested(run: Run) -> None:
    unknown = "GPU-00000000-0000-0000-0000-00000000000f"
    found = run("hang", "--limit", "1", uuids=(A, B, unknown))
    assert [row["verdict"] for row in found] == ["hang", "untested", "untested"]
    assert "killed" in found[0]["detail"]
    assert "none is" in found[1]["detail"]


def test_the_marker_is_gone_after_the_test(run: Run, tmp_path: Path) -> None:
    marker = tmp_path / "new" / "marker"
    assert run("work", "--marker", str(marker))[0]["verdict"] == "ok"
    assert marker.parent.is_dir()
    assert not marker.exists()


def test_B22_a_machine_that_froze_in_the_test_is_not_tested_again(run: Run, tmp_path: Path) -> None:
    """The marker of another boot is there: the test began and the machine was restarted before it ended."""
    marker = tmp_path / "marker"
    marker.write_text("another-boot-id\n")
    (found,) = run("work", "--marker", str(marker))
    assert found["verdict"] == "froze"
    assert str(marker) in found["detail"]
    assert marker.exists()


def test_the_fact_runs_the_program_as_one_command(libcuda: Path) -> None:
    command = PeerTest().command(uuids=(A, B), limit=20)
    assert "base64" not in str(command), "logs show a word, not the program"
    raw = command.get_raw_value().replace("/var/lib/qwen/peer-test-started", str(libcuda / "marker"))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libcuda), "FAKE_CUDA": "work"}
    done = subprocess.run(["sh", "-c", raw], env=environment, capture_output=True, text=True, timeout=60)
    (verdict,) = PeerTest().process(done.stdout.splitlines())
    assert (verdict.a, verdict.b, verdict.verdict) == (A, B, "ok")
    assert verdict.gb_s is not None


def test_an_answer_that_is_no_verdict_fails_the_host_only() -> None:
    with pytest.raises(FactProcessError):
        PeerTest().process(["Traceback (most recent call last):"])
    row = '[{"a": "x", "b": "y", "verdict": "hang", "detail": "d"}]'
    assert PeerTest().process([row]) == [PeerVerdict("x", "y", "hang", "d")]


def test_only_uuids_reach_the_command_line() -> None:
    with pytest.raises(ValueError, match="not a GPU's UUID"):
        PeerTest().command(uuids=("0; reboot",))

"""Every known failure has its test; and those whose remedy lies beside the driver are tested here."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from qwenlab.driver.decision import Verdict, decide
from qwenlab.engine.pins import pins
from qwenlab.engine.release import uv_environment
from qwenlab.facts.merge import Merged
from qwenlab.facts.usability import Situation, objection
from qwenlab.gpu_data import table
from qwenlab.operations import driver
from qwenlab.planner.cards import OLDEST
from tests.driver.bugs import BUGS
from tests.driver.states import RTX_3090, wishes, working
from tests.driver.test_operations import STATE, WORKING
from tests.operations.fake import commands

TESTS = Path(__file__).resolve().parents[1]


def ids_in(name: str) -> set[str]:
    """The bug ids that a test's name bears: test_b34_b38_the_toolkit_is... has two."""
    return {f"B{number}" for number in re.findall(r"(?<=_)[bB](\d{2,3})(?=_)", name)}


@pytest.fixture(scope="module")
def named() -> set[str]:
    names = [
        name for path in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    ]
    return {one for name in names for one in ids_in(name)}


@pytest.mark.parametrize("bug", BUGS, ids=[f"{bug}: {what}" for bug, what in BUGS.items()])
def test_every_known_failure_is_named_by_a_test(bug: str, named: set[str]) -> None:
    assert bug in named


def test_b17_a_fabric_manager_that_is_down_is_started_and_nothing_reinstalled() -> None:
    """Without it NVSwitch routes nothing, and an HGX box looks like cards on a PCIe bus."""
    host = [*WORKING, "pci=0000:f0:00.0 0x22a3 0x068000", "managed=yes"]
    answers = {STATE: host, "is-enabled nvidia-persistenced": ["enabled active"], "fabricmanager": ["enabled failed"]}
    assert [line for line, _ in commands(driver.works, answers, settings=wishes())] == [
        "systemctl enable --quiet --now nvidia-fabricmanager.service"
    ]
    answers["fabricmanager"] = ["enabled active"]
    assert commands(driver.works, answers, settings=wishes()) == []


def test_b20_a_card_that_took_the_driver_down_is_no_reason_to_reinstall_it() -> None:
    """Nor is the driver reinstalled for the cards that went down with it: packages mend no hardware."""
    said = ("Unable to determine the device handle for GPU0000:21:00.0: Unknown Error",)
    log = ("NVRM: Xid (PCI:0000:21:00): 79, pid=1714, GPU has fallen off the bus.",)
    decision = decide(working(*[RTX_3090] * 4, smi_code=15, smi=said, log=log), wishes(allow_reboot=True))
    assert decision.verdict is Verdict.REFUSE
    assert "lists 0 of 4 cards" in decision.reasons[0]
    assert said[0] in decision.reasons[0]
    assert "not reinstalled" in decision.reasons[0]


def test_b40_the_pinned_torch_has_kernels_for_every_card_that_is_planned() -> None:
    planned = [spec for spec in table().cards if spec.compute_capability and spec.compute_capability >= OLDEST]
    assert {(7, 5), (8, 6), (9, 0), (10, 0), (12, 0)} <= {spec.compute_capability for spec in planned}
    for row in pins().releases:
        if row.engine == "cuda":
            major, minor = (int(part) for part in row.constraints["nvidia-cuda-nvcc"].split(".")[:2])
            torch = Situation(None, (major, minor), 0, unrouted_nvswitch=False)
            for spec in planned:
                card = Merged(values={"compute_capability": spec.compute_capability, "memory_total_mib": 24576})
                assert objection(card, torch) is None, spec.name


def test_b41_no_companion_of_flashinfer_comes_at_a_version_of_its_own() -> None:
    """flashinfer-cubin and -jit-cache must equal flashinfer-python; without them its kernels are compiled."""
    for row in pins().releases:
        found = dict(re.findall(r"^(flashinfer-[a-z-]+)==(\S+)", row.lock(), re.M))
        assert set(found.values()) <= {row.flashinfer}


def test_b43_a_release_is_unpacked_in_the_cache_and_not_in_tmp(tmp_path: Path) -> None:
    """uv itself, with the environment that it gets on a host, and no temporary directory at all."""
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    given = uv_environment(wishes(uv_cache_directory=str(tmp_path / "cache")))
    environment = {**given, "TMPDIR": "/nonexistent", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    uv = shutil.which("uv")
    assert uv is not None, "uv is needed (docs.astral.sh/uv)"
    command = [uv, "pip", "install", "--offline", "--python", sys.executable, "--target", str(tmp_path / "venv")]
    done = subprocess.run([*command, str(wheel)], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "venv/tiny.py").exists()
    assert list((tmp_path / "cache").iterdir())

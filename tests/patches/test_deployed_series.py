"""A host gets the patches that its plan names or nothing: what the deploy's operations and the build do about it."""

from __future__ import annotations

import io
import json
import shutil
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from qwenlab.engine.release import BuildStep
from qwenlab.operations import checkpoint, engine, planning, service
from qwenlab.patches import applier, manifest
from qwenlab.patches.job import make_job
from qwenlab.planner import plan
from qwenlab.remote import build_release
from qwenlab.settings import Settings, load
from tests.operations.fake import commands
from tests.patches.test_refusals import NAMES, PATCHED, REFUSALS, VLLM, Setting, setting
from tests.planner.machines.table import inventories

__all__ = ["setting"]  # the fixture

PAIR = inventories()["5080+3080"]
OVER_A_PIPELINE = "aux-hidden-states-over-pp"
RELEASES = manifest.releases()
FRESH = {"releases/*/release.json": ["python=/usr/bin/python3 3.12", "current="]}
# (operation, its arguments) that build, fetch with, switch to or configure for a release
STEPS: dict[str, tuple[Any, dict[str, Any]]] = {
    "release": (engine.release, {}),
    "fetch": (checkpoint.fetch, {"token": None}),
    "switch": (engine.switch, {}),
    "configure": (service.configure, {}),
}


def forget() -> None:
    for cached in (manifest.load, manifest.file_digests):
        cached.cache_clear()


@pytest.fixture
def series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the series that may be changed, on a host of two cards of different models."""
    copy = tmp_path / "series"
    shutil.copytree(manifest.series_root(), copy)
    monkeypatch.setattr(manifest, "series_root", lambda: copy)
    monkeypatch.setattr(planning, "host_inventory", lambda _: PAIR)
    monkeypatch.setattr(service, "host_inventory", lambda _: PAIR)
    forget()
    yield copy
    forget()


def settings(vllm: str) -> Settings:
    return load({"qwen_vllm": vllm, "qwen_generate_api_key": False})


@pytest.mark.parametrize("vllm", RELEASES)
def test_dflash_over_a_pipeline_is_built_with_every_patch_that_its_plan_names(vllm: str, series: Path) -> None:
    (made,) = plan(PAIR, settings(vllm)).engines
    assert (made.pp, made.speculation and made.speculation.method) == (2, "dflash")
    ((_, stdin),) = commands(engine.release, FRESH, settings=settings(vllm))
    (step,) = json.loads(stdin)["steps"]
    carried = {entry["id"] for entry in json.loads(step["files"]["job.json"])["patches"]}
    assert carried >= {OVER_A_PIPELINE, *made.patches}


def without_it(folder: Path) -> None:
    path = folder / "series.yaml"
    head, *entries = path.read_text().split("\n  - id: ")
    kept = [entry for entry in entries if not entry.startswith(f"{OVER_A_PIPELINE}\n")]
    assert len(kept) == len(entries) - 1
    path.write_text("\n  - id: ".join([head, *kept]))


def another_diff(folder: Path) -> None:
    path = folder / f"{OVER_A_PIPELINE}.patch"
    path.write_text(path.read_text() + "\n")


def no_diff(folder: Path) -> None:
    (folder / f"{OVER_A_PIPELINE}.patch").unlink()


@pytest.mark.parametrize("vllm", RELEASES)
@pytest.mark.parametrize("change", [without_it, another_diff, no_diff])
@pytest.mark.parametrize(("operation", "arguments"), STEPS.values(), ids=STEPS)
def test_it_is_not_deployed_without_them(
    operation: Any, arguments: dict[str, Any], change: Callable[[Path], None], vllm: str, series: Path
) -> None:
    change(series / vllm)
    ((kind, reasons),) = commands(operation, FRESH, settings=settings(vllm), **arguments)
    assert kind == "refused"
    assert OVER_A_PIPELINE in reasons


def built(released: Path, job: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Build release "r" in `folder` from that tree, patched as `job` says: the exit code of the program on the host."""

    def uv(arguments: list[str], environment: dict[str, str], purpose: str) -> None:
        if arguments[0] == "venv":
            venv.create(arguments[-1], symlinks=True)
        else:
            site = next(folder.glob("*/venv/lib/python3*/site-packages"))
            shutil.copytree(released, site, dirs_exist_ok=True)

    def check_import(venv: Path, version: str, environment: dict[str, str]) -> None:
        assert version == VLLM

    monkeypatch.setattr(build_release, "uv", uv)
    monkeypatch.setattr(build_release, "check_import", check_import)  # there is no torch beside two files
    program = Path(applier.__file__).read_text()
    step = BuildStep("patches", "apply the patch series", program, {"job.json": json.dumps(job)}, ("apply", "job.json"))
    order = {
        "id": "r",
        "directory": str(folder),
        "version": VLLM,
        "python": "",
        "lock": "",
        "alias": None,
        "find_links": [],
        "offline": True,
        "system_packages": False,
        "need_gib": 0,
        "environment": {},
        "steps": [asdict(step)],
        "record": {"id": "r"},
    }
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(order)))
    return build_release.main()


@pytest.mark.parametrize(("make", "code", "named"), REFUSALS.values(), ids=REFUSALS)
def test_what_the_series_refuses_becomes_no_release(
    make: Callable[[Setting], None],
    code: str,
    named: str,
    setting: Setting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(setting)
    folder = tmp_path / "releases"
    assert built(setting.tree, make_job(VLLM, NAMES), folder, monkeypatch) == 1
    said = capsys.readouterr().err
    assert "release r was not built: could not apply the patch series" in said
    assert code in said
    assert named in said
    assert list(folder.rglob("release.json")) == []
    assert not (folder / "r").exists()


def test_what_it_does_not_refuse_becomes_one(setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "releases"
    assert built(setting.tree, make_job(VLLM, NAMES), folder, monkeypatch) == 0
    (file,) = (folder / "r").rglob("vllm/two.py")
    assert file.read_text() == PATCHED

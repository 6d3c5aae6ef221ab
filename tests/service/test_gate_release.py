"""The gate before a release whose patched files somebody changed: the real applier patches, real edits follow."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from qwenlab.operations.patch import series_steps
from qwenlab.patches.applier import apply_job
from qwenlab.remote import status
from qwenlab.remote.gating.look import CONFIG, Gate
from qwenlab.remote.gating.release import PATCHES, RECEIPT, check_release
from tests.patches.test_applier import FILES, job_of
from tests.patches.test_release_step import PIPELINE, settings

SITE = "venv/lib/python3.12/site-packages"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release as build_release.py leaves it, behind the link `current`."""
    built = tmp_path / "releases/one"
    (built / "venv/bin").mkdir(parents=True)
    (built / "venv/bin/python").touch(mode=0o755)
    for name, text in FILES.items():
        path = built / SITE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    apply_job(job_of("ten", "cache"), built / SITE)
    (built / "release.json").write_text(json.dumps({"steps": [PATCHES]}))
    current = tmp_path / "current"
    current.symlink_to("releases/one")
    return current


def told(release: Path) -> list[str]:
    """The gate's words; each says that restarting cannot mend it."""
    found = list(check_release(Gate({"release": str(release)})))
    assert all(problem.code == CONFIG for problem in found)
    return [problem.text for problem in found]


def append(path: Path) -> None:
    """What an editor on the host does."""
    path.write_text(path.read_text() + "print('looked')\n")


def to_stock(path: Path) -> None:
    """What an upgrade inside the environment does."""
    path.write_text(FILES["vllm/engine.py"])


def touch(path: Path) -> None:
    """What a copy or a backup does."""
    os.utime(path, (0, 0))


@pytest.mark.parametrize(
    ("change", "file", "words"),
    [
        (touch, f"{SITE}/vllm/engine.py", None),
        (append, f"{SITE}/vllm/_version.py", None),  # no patch touches it
        (append, f"{SITE}/vllm/engine.py", "vllm/engine.py is not as the release was built"),
        (to_stock, f"{SITE}/vllm/engine.py", "vllm/engine.py is not as the release was built"),
        (Path.unlink, f"{SITE}/vllm/core/cache.py", "vllm/core/cache.py is not as the release was built"),
        (Path.unlink, f"{SITE}/{RECEIPT}", f"{RECEIPT} is not as the release was built"),
        (append, f"{SITE}/{RECEIPT}", f"{RECEIPT} is not as the release was built"),
        (append, "release.json", "release.json is not as the release was built"),
    ],
)
def test_a_change_by_hand_is_refused_with_what_to_do(
    release: Path, change: Callable[[Path], None], file: str, words: str | None
) -> None:
    change(release / file)
    found = told(release)
    assert len(found) == (words is not None)
    for text in found:
        assert words is not None
        assert words in text
        assert f"rm {release}/release.json; and deploy again" in text
        assert "qwen_extra_patches" in text


def test_the_status_tells_it_before_a_start_does(release: Path, tmp_path: Path) -> None:
    unit = tmp_path / "unit"
    unit.write_text(f"[Service]\nExecStart={release}/venv/bin/python engine.py\n")
    place = status.current_place(unit)
    assert (status.current_release(place), status.release_problems(place)) == ("one", [])
    append(release / SITE / "vllm/engine.py")
    assert status.release_problems(place) == told(release)


def test_several_changed_files_are_counted(release: Path) -> None:
    for file in ("vllm/engine.py", "vllm/core/cache.py"):
        append(release / SITE / file)
    (text,) = told(release)
    assert "cache.py and 1 more" in text or "engine.py and 1 more" in text


def test_a_release_without_patches_has_nothing_to_compare(release: Path) -> None:
    (release / "release.json").write_text('{"steps": ["torchvision_operators"]}')
    (release / SITE / RECEIPT).unlink()
    assert told(release) == []


def test_the_step_is_called_in_the_record_what_the_gate_looks_for() -> None:
    (step,) = series_steps(settings(), PIPELINE)
    assert step.name == PATCHES

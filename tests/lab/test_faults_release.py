"""Faults around a change: a release that does not import, power cut in the middle, what people and disks do to files.

Each ends serving: the new, or what served before, or after the next deploy. Another release is made by a patch series
of the host's owner (`qwen_extra_patches`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from qwenlab.patches.extra import folder_digest
from tests import lab
from tests.lab.deploying import ask, inventory, started
from tests.lab.serving import (
    ANSWERS,
    QUICK,
    UNIT,
    Served,
    files,
    forget_restarts,
    show,
    wait,
    wait_for_another_start,
)

pytestmark = [pytest.mark.lab, pytest.mark.engine, pytest.mark.slow]

SETTINGS = QUICK
HARMLESS = """\
--- /dev/null
+++ b/vllm/lab_note.py
@@ -0,0 +1 @@
+NOTE = "another release"
"""
IMPORTS = """\
--- a/vllm/entrypoints/cli/main.py
+++ b/vllm/entrypoints/cli/main.py
@@ -8,3 +8,7 @@
 import importlib.metadata
+import os
 import sys
 from importlib.util import find_spec
+
+if @CONDITION@:
+    raise ImportError("no such symbol in this build")
"""
CURRENT = "readlink /opt/qwen/current"
WHOLE = "ls /opt/qwen/releases/*/release.json"
VERIFIED = "/var/lib/qwenlab/verify/cpu.json"


@pytest.fixture
def serving(served: Served) -> Iterator[lab.Host]:
    """The host, serving before and after."""
    forget_restarts(served.host)
    served.host.ssh_run(f"systemctl start qwen {UNIT}", timeout=600)
    yield served.host
    served.host.ssh_run(ANSWERS)
    assert ask(served.host)[0] == 200


def release_with(diff: str, directory: Path) -> dict[str, Any]:
    """The setting that makes another release: one with this diff."""
    series = directory / "series"
    series.mkdir()
    files = {"series": b"one.diff\n", "one.diff": diff.encode()}
    for name, content in files.items():
        (series / name).write_bytes(content)
    return {"qwen_extra_patches": [{"source": str(series), "sha256": folder_digest(files, "series")}]}


def test_a_release_that_does_not_import_is_not_even_built_to_its_end(
    served: Served, serving: lab.Host, tmp_path: Path
) -> None:
    before = files(serving), serving.ssh_run(WHOLE).stdout, show(serving, "MainPID")
    run = served.redeploy(**release_with(IMPORTS.replace("@CONDITION@", "True"), tmp_path))
    assert run.code == 1
    assert "no such symbol in this build" in run.text
    assert (files(serving), serving.ssh_run(WHOLE).stdout, show(serving, "MainPID")) == before


def test_a_release_that_does_not_import_as_a_service_is_rolled_back(
    served: Served, serving: lab.Host, tmp_path: Path
) -> None:
    before = files(serving)
    run = served.redeploy(**release_with(IMPORTS.replace("@CONDITION@", '"QWEN_ENGINE" in os.environ'), tmp_path))
    assert run.code == 1
    assert "ImportError: no such symbol in this build" in run.text
    assert "rolled back: release cpu-0.32.0-" in run.text
    assert files(serving) == before


def test_a_verification_that_fails_is_rolled_back(served: Served, serving: lab.Host) -> None:
    before = files(serving)
    serving.put(json.dumps({"rates": {"decode_tok_s": 1e9}}).encode(), VERIFIED)
    run = served.redeploy(qwen_cpu_seats=3, qwen_verify=True)
    serving.ssh_run(f"rm {VERIFIED}")
    assert run.code == 1
    assert "decode_tok_s fell from 1000000000.0" in run.text
    assert "rolled back: release cpu-0.32.0-" in run.text
    assert files(serving) == before


def test_power_cut_while_it_starts(serving: lab.Host) -> None:
    before = files(serving)
    serving.ssh_run("systemctl restart --no-block qwen")
    wait(serving, f"systemctl show -p StatusText --value {UNIT} | grep -q 'loading the model'", 60)
    serving.power_off()
    serving.power_on()
    wait(serving, ANSWERS)
    assert files(serving) == before


def test_power_cut_during_the_switch_to_another_release(served: Served, serving: lab.Host, tmp_path: Path) -> None:
    other = release_with(HARMLESS, tmp_path)
    data = {**serving.pyinfra_data("admin"), **served.sources.settings(**served.settings, **other)}
    former = serving.ssh_run(CURRENT).stdout.strip()
    with started(inventory(tmp_path, {serving.name: data})) as process:
        wait(serving, f'[ "$({CURRENT})" != {former} ]', 560)
        serving.power_off()
        assert process.wait(timeout=300) == 1
    serving.power_on()
    wait(serving, ANSWERS)
    assert ask(serving)[0] == 200
    run = served.redeploy(**other)
    assert run.code == 0, run.text
    assert serving.ssh_run(CURRENT).stdout.strip() != former
    again = served.play("rollback.py")
    assert again.returncode == 0, again.stderr
    assert serving.ssh_run(CURRENT).stdout.strip() == former


def test_the_control_machine_dies_between_files_and_restart(served: Served, serving: lab.Host, tmp_path: Path) -> None:
    before = show(serving, "MainPID")
    data = {**serving.pyinfra_data("admin"), **served.sources.settings(**served.settings, qwen_cpu_seats=5)}
    with started(inventory(tmp_path, {serving.name: data})) as process:
        wait(serving, "grep -q 'max-num-seqs: 5' /etc/qwen/engines/cpu.yaml", 560)
        process.kill()
    assert (show(serving, "MainPID"), ask(serving)[0]) == (before, 200)
    run = served.redeploy(qwen_cpu_seats=5)
    assert run.code == 0, run.text
    assert show(serving, "MainPID") != before
    assert served.redeploy().code == 0


def test_a_unit_that_somebody_edited_is_told_and_put_back(served: Served, serving: lab.Host) -> None:
    """The engine runs with the edited one by then."""
    serving.ssh_run(
        "sed -i '/^NoNewPrivileges=/d; s/^Restart=.*/Restart=no/' /etc/systemd/system/qwen-engine@.service; "
        "systemctl daemon-reload; systemctl restart qwen",
        timeout=600,
    )
    before = show(serving, "MainPID")
    assert "qwen-engine@.service differs from what a deploy would put there" in served.play("status.py").stderr
    run = served.redeploy()
    assert run.code == 0, run.text
    assert show(serving, "MainPID") != before
    assert (show(serving, "Restart"), show(serving, "NoNewPrivileges")) == ("always", "yes")


def test_a_service_user_that_was_removed_is_made_again_and_gets_its_files(served: Served, serving: lab.Host) -> None:
    """Also when its number went to somebody else meanwhile."""
    serving.ssh_run(
        f"systemctl stop qwen {UNIT}; number=$(id -u qwen); userdel qwen; useradd --system --uid $number other"
    )
    assert serving.ssh_run(f"systemctl start {UNIT}", check=False, timeout=60).returncode != 0
    assert "217/USER" in serving.ssh_run(f"systemctl status --no-pager {UNIT}", check=False).stdout
    run = served.redeploy()
    assert run.code == 0, run.text
    assert serving.ssh_run("find /var/lib/qwen /srv/qwen/models ! -user qwen").stdout == ""


def test_a_checkpoint_file_that_was_lost_is_refused_and_fetched_again(served: Served, serving: lab.Host) -> None:
    serving.ssh_run(f"systemctl stop qwen {UNIT}; rm $(find /srv/qwen/models -name 'model-00001-*.safetensors')")
    assert serving.ssh_run(f"systemctl start {UNIT}", check=False, timeout=60).returncode != 0
    assert "has another size than its manifest says: deploy again" in show(serving, "StatusText")
    run = served.redeploy()
    assert run.code == 0, run.text


READS_CACHE = """\
--- a/vllm/entrypoints/cli/main.py
+++ b/vllm/entrypoints/cli/main.py
@@ -8,3 +8,8 @@
 import importlib.metadata
+import os
+import pathlib
 import sys
 from importlib.util import find_spec
+
+for entry in pathlib.Path(os.environ["HOME"], ".cache/vllm/torch_compile_cache").glob("*"):
+    compile(entry.read_text(), str(entry), "exec")
"""


def test_a_damaged_compile_cache_is_set_aside_after_two_restarts(
    served: Served, serving: lab.Host, tmp_path: Path
) -> None:
    """The cpu engine compiles nothing, so this release reads the cache at its start as a compiling one does."""
    run = served.redeploy(**release_with(READS_CACHE, tmp_path))
    assert run.code == 0, run.text
    cache = "/var/lib/qwen/.cache/vllm/torch_compile_cache"
    serving.ssh_run(f"install -d -o qwen -g qwen {cache}; echo 'def half(' > {cache}/graph.py")
    before = show(serving, "MainPID")
    serving.ssh_run(f"kill -9 {before}")
    wait_for_another_start(serving, before)
    assert "SyntaxError" in serving.journal(UNIT)
    assert f"compile cache set aside as {cache}.suspect" in serving.journal(UNIT)
    assert serving.ssh_run(f"cat {cache}.suspect/graph.py").stdout == "def half(\n"
    assert served.redeploy().code == 0

"""The files that land on a host, from plan and settings alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from qwenlab.host_inventory import HostInventory
from qwenlab.planner.cpu import plan_cpu
from qwenlab.planner.plan import Checkpoint, EnginePlan, HostPlan, NodeProcess, Workload
from qwenlab.programs import PROGRAMS, programs
from qwenlab.remote.gating.files import END
from qwenlab.render import RemoteFile, apt_file, environment_file, render
from qwenlab.settings import Settings, load

REVISION = "0123456789abcdef0123456789abcdef01234567"
ENGINE = EnginePlan(
    name="pair",
    port=8000,
    gpus=("GPU-a", "GPU-b"),
    tp=2,
    checkpoint=Checkpoint(repo="owner/model", revision=REVISION, format="int4-autoround"),
    kv_cache_dtype="fp8",
    attention_backend="FLASHINFER",
    max_model_len=262144,
    max_num_seqs=4,
    args={"tensor-parallel-size": 2, "speculative-config": {"method": "mtp", "num_speculative_tokens": 3}},
    env={"NCCL_P2P_DISABLE": "1", "ODD": 'with "quotes" and $dollar'},
)


def settings(**more: Any) -> Settings:
    """Settings of a cpu host."""
    given = {"engine": "cpu", "cpu_checkpoint": "lab/tiny", "cpu_revision": REVISION, **more}
    return load({f"qwen_{key}": value for key, value in given.items()})


def plan_of(*engines: EnginePlan) -> HostPlan:
    """A plan with these engines."""
    return HostPlan(status="planned", workload=Workload.CHAT, vllm="0.33.0", engines=engines)


def config(files: dict[str, RemoteFile], name: str) -> dict[str, Any]:
    """What vLLM is told."""
    loaded: dict[str, Any] = yaml.safe_load(files[f"/etc/qwen/engines/{name}.yaml"].content)
    return loaded


def test_the_cpu_plan_becomes_one_engine() -> None:
    chosen = settings(port=8123, generate_api_key=False)
    files = render(plan_cpu(HostInventory(), chosen), chosen)
    assert config(files, "cpu") == {
        "model": f"/srv/qwen/models/lab/tiny/{REVISION}",
        "served-model-name": ["qwen"],
        "host": "127.0.0.1",
        "port": 8123,
        "shutdown-timeout": 60,
        "disable-access-log-for-endpoints": "/health,/metrics",
        "max-model-len": 2048,
        "max-num-seqs": 4,
        "enforce-eager": True,
        "language-model-only": True,
    }
    assert HostPlan.model_validate_json(files["/etc/qwen/plan.json"].content).engines[0].name == "cpu"


def test_nested_arguments_stay_nested_and_cards_are_named_by_uuid() -> None:
    files = render(plan_of(ENGINE), settings(api_key="0123456789"))
    assert config(files, "pair")["speculative-config"] == {"method": "mtp", "num_speculative_tokens": 3}
    assert config(files, "pair")["host"] == "0.0.0.0"
    environment = files["/etc/qwen/engines/pair.env"].content.splitlines()
    assert 'CUDA_VISIBLE_DEVICES="GPU-a,GPU-b"' in environment
    assert 'CUDA_DEVICE_ORDER="PCI_BUS_ID"' in environment
    assert 'ODD="with \\"quotes\\" and $dollar"' in environment


def test_an_engine_of_two_processes_is_two_units_and_only_the_first_is_asked() -> None:
    processes = (
        NodeProcess(node_rank=0, gpus=("GPU-a",), args={"node-rank": 0}),
        NodeProcess(node_rank=1, gpus=("GPU-b",), args={"node-rank": 1, "headless": True}, env={"ONLY": "b"}),
    )
    files = render(plan_of(ENGINE.model_copy(update={"processes": processes})), settings())
    assert 'CUDA_VISIBLE_DEVICES="GPU-a"' in files["/etc/qwen/engines/pair.env"].content
    assert 'CUDA_VISIBLE_DEVICES="GPU-b"' in files["/etc/qwen/engines/pair-1.env"].content
    assert 'ONLY="b"' in files["/etc/qwen/engines/pair-1.env"].content
    assert config(files, "pair-1")["headless"] is True
    umbrella = files["/etc/systemd/system/qwen.service"].content
    assert "ExecStart=/usr/local/lib/qwen/engines-up start pair pair-1" in umbrella


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", '"plain"'),
        ("größe", '"größe"'),  # systemd knows no \\u
        ("a\tb", '"a\tb"'),  # nor \\t
        ('say "x"', '"say \\"x\\""'),
        ("a\\b", '"a\\\\b"'),
        ("$HOME `id` %h 'q' # ;", "\"$HOME `id` %h 'q' # ;\""),
        ("", '""'),
    ],
)
def test_a_variable_reaches_the_engine_as_it_was_given(value: str, written: str) -> None:
    assert environment_file({"NAME": value}) == f"NAME={written}\n"


def test_secrets_are_in_no_rendered_file() -> None:
    chosen = settings(api_key="0123456789", hub_token="hf_secret")
    everything = "".join(file.content for file in render(plan_cpu(HostInventory(), chosen), chosen).values())
    assert "0123456789\n" not in everything.replace(REVISION, "")
    assert "hf_secret" not in everything


@pytest.mark.parametrize(
    ("proxy", "mode"),
    [("http://proxy.lab:3128", "644"), ("http://user:secret@proxy.lab:3128", "600"), (None, "644")],
)
def test_a_proxys_password_is_not_for_every_user(proxy: str | None, mode: str) -> None:
    file = apt_file(settings(https_proxy=proxy))
    assert file.mode == mode
    assert (proxy or "none") in file.content + "none"


def test_what_an_engine_is_started_with_ends_in_the_line_that_the_gate_looks_for() -> None:
    chosen = settings()
    files = render(plan_cpu(HostInventory(), chosen), chosen)
    asked = json.loads(files["/etc/qwen/engines/cpu.gate.json"].content)["files"]
    assert asked == ["/etc/qwen/engines/cpu.yaml", "/etc/qwen/engines/cpu.env"]
    assert all(files[path].content.endswith(END) for path in asked)


@pytest.mark.parametrize(("keyed", "lines"), [(True, 1), (False, 0)])
def test_the_key_comes_as_a_credential(keyed: bool, lines: int) -> None:
    chosen = settings(generate_api_key=keyed)
    unit = render(plan_cpu(HostInventory(), chosen), chosen)["/etc/systemd/system/qwen-engine@.service"].content
    assert unit.count("LoadCredential=api_key:/etc/qwen/secrets/api_key\n") == lines


def test_engine_files_are_for_the_service_user_alone() -> None:
    chosen = settings(user="llm")
    files = render(plan_cpu(HostInventory(), chosen), chosen)
    assert {(file.mode, file.user, file.group) for path, file in files.items() if "/engines/" in path} == {
        ("640", "root", "llm")
    }
    assert "User=llm\n" in files["/etc/systemd/system/qwen-engine@.service"].content


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.fail("systemd-analyze is needed (Debian package systemd)")
    chosen = settings(api_key="0123456789")
    units = tmp_path / "units"
    units.mkdir()
    for path, file in render(plan_cpu(HostInventory(), chosen), chosen).items():
        if path.endswith(".service"):
            # the programs are not on this machine; systemd-analyze would complain about them alone
            text = file.content.replace("/usr/local/lib/qwen/engines-up", "/bin/true")
            text = text.replace("/usr/local/lib/qwen/fingerprint", "/bin/true")
            text = text.replace("/opt/qwen/current/venv/bin/python", "/bin/true")
            (units / Path(path).name).write_text(text)
    (units / "qwen-engine@.service").rename(units / "qwen-engine@cpu.service")
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(units / "qwen.service"), str(units / "qwen-engine@cpu.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert [line for line in checked.stderr.splitlines() if "qwen" in line] == []


def test_every_program_is_there_and_knows_where_releases_lie() -> None:
    found = programs(settings(release_directory="/data/qwen"))
    own = {path: file for path, file in found.items() if "/qwen/qwenlab/" not in path}
    assert {path.rsplit("/", 1)[-1] for path in own} == set(PROGRAMS)
    assert {file.mode for file in own.values()} == {"755"}
    assert 'CURRENT = Path("/data/qwen/current")' in found["/usr/local/lib/qwen/generation.py"].content
    assert not any("@RELEASES@" in file.content for file in found.values())


# fetch_checkpoint.py runs in a release, whose huggingface_hub it wants
@pytest.mark.parametrize("program", sorted({one for one in PROGRAMS if one.endswith(".py")} - {"fetch_checkpoint.py"}))
def test_a_program_finds_its_parts_beside_it_and_nothing_else_of_qwenlab(tmp_path: Path, program: str) -> None:
    for path, file in programs(settings()).items():
        place = tmp_path / Path(path).relative_to("/usr/local/lib/qwen")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(file.content)
    load = f"import runpy; runpy.run_path({str(tmp_path / program)!r}, run_name='loaded')"
    # -I: neither this environment's packages nor the working directory; -S: not even site-packages
    command = [sys.executable, "-I", "-S", "-B", "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {load}"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr


def test_the_plan_on_the_host_is_plain_json() -> None:
    chosen = settings()
    text = render(plan_cpu(HostInventory(), chosen), chosen)["/etc/qwen/plan.json"].content
    assert json.loads(text)["schema"] == 1
    assert text.endswith("\n")

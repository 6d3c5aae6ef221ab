"""Rehearsal: what a host is asked to try, what it needs for it, and how the result is told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import FactProcessError

from qwenlab.engine.release import pinned_steps
from qwenlab.facts.rehearsal import RehearsalResult, ServingCards
from qwenlab.operations import rehearsal as operations
from qwenlab.planner import plan
from qwenlab.planner.plan import Checkpoint
from qwenlab.rehearsal.engine_log import EngineLog, RankUse
from qwenlab.remote import rehearse
from qwenlab.remote.checkpoint.files import FileEntry
from qwenlab.remote.checkpoint.listing import Listing, without_weights
from qwenlab.remote.rehearse import RehearsalError
from qwenlab.service.rehearsal import in_the_way, job, lines, log_of, ok, unit
from qwenlab.settings import Settings, load
from tests.operations.fake import commands
from tests.operations.test_operations import settings as cpu_settings
from tests.operations.test_operations import state, wanted
from tests.planner.machines.table import inventories

ENVIRONMENT = {"https_proxy": "p", "HF_HOME": "/var/lib/qwen/.cache/huggingface"}
RELEASE = "/opt/qwen/releases/one"
HOST = inventories()["2x3090-nvlink"]
SETTINGS = load({"qwen_api_key": "0123456789"})
PLAN = plan(HOST, SETTINGS)
(ENGINE,) = PLAN.engines


def fetching(checkpoint: Checkpoint) -> dict[str, Any]:
    """A deploy's own job for a checkpoint."""
    place = f"/srv/qwen/models/{checkpoint.place}"
    return {
        "repo": checkpoint.repo,
        "directory": place,
        "source": "peer",
        "token": "secret",
        "environment": ENVIRONMENT,
        "prepare": {"recipe": "x"},
    }


def asked(settings: Settings = SETTINGS) -> dict[str, Any]:
    """The job for the host, as it arrives there."""
    made: dict[str, Any] = json.loads(json.dumps(job(PLAN, settings, RELEASE, fetching)))
    return made


def test_weights_are_made_up_and_every_path_is_the_rehearsals_own() -> None:
    (engine,) = asked()["engines"]
    (one,) = engine["units"]
    assert (one["args"]["load-format"], one["args"]["host"]) == ("dummy", "127.0.0.1")
    assert one["args"]["model"].startswith("/run/qwen-rehearsal/models/")
    text = json.dumps(engine)
    assert "/srv/qwen/models" not in text
    assert "/var/lib/qwen" not in text
    assert one["args"]["kv-cache-memory-bytes"] == ENGINE.args["kv-cache-memory-bytes"]
    assert one["gate"]["cards"] == list(ENGINE.gpus)


def test_only_what_says_how_a_model_is_made_is_fetched_and_from_the_hub() -> None:
    for checkpoint in asked()["checkpoints"]:
        fetch = checkpoint["job"]
        assert (fetch["weights"], fetch["source"]) == (False, "hub")
        assert fetch["directory"].startswith("/run/qwen-rehearsal/models/")
        assert "prepare" not in fetch
        assert fetch["environment"] == {**ENVIRONMENT, "HF_HOME": "/run/qwen-rehearsal/models/.huggingface"}


@pytest.mark.parametrize("key", [None, "0123456789"])
def test_the_unit_is_the_engines_own_without_key_watch_restart_and_umbrella(key: str | None) -> None:
    settings = load({"qwen_api_key": key} if key else {"qwen_generate_api_key": False})
    text = unit(settings, RELEASE)
    for word in ("PartOf=", "LoadCredential", "WatchdogSec", "/var/lib/qwen\n"):
        assert word not in text
    assert "CapabilityBoundingSet=\n" in text
    assert re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)[-2:] == [
        "",
        f"{RELEASE}/venv/bin/python /usr/local/lib/qwen/engine.py /run/qwen-rehearsal/%i.yaml",
    ]
    assert text.rstrip().splitlines()[-1] == ("IPAddressAllow=" if key else "Restart=no")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.fail("systemd-analyze is needed (Debian package systemd)")
    text = unit(cpu_settings(), RELEASE).replace(f"{RELEASE}/venv/bin/python", "/bin/true")
    text = text.replace("/opt/qwen/current/venv/bin/python", "/bin/true")
    text = text.replace("/usr/local/lib/qwen/fingerprint", "/bin/true")
    path = tmp_path / "qwen-rehearsal@cpu.service"
    path.write_text(text)
    said = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(
    ("serving", "names"),
    [
        ({}, []),
        ({"engine1": ENGINE.gpus[:1]}, ["engine1"]),
        ({"engine2": ("GPU-other",)}, []),
        ({"cpu": ()}, ["cpu"]),
    ],
)
def test_what_serves_on_a_planned_card_is_in_the_way(serving: dict[str, tuple[str, ...]], names: list[str]) -> None:
    assert in_the_way(PLAN, serving) == names


@pytest.mark.parametrize(("stop", "refused"), [(False, True), (True, False)])
def test_a_serving_host_is_refused_unless_it_may_be_stopped(stop: bool, refused: bool) -> None:
    answers = {"list-units": ['cpu {"cards": []}']}
    found = commands(operations.check, answers, settings=cpu_settings(rehearse_stop=stop))
    assert [kind for kind, _ in found] == (["refused"] if refused else [])
    assert not refused or "--data qwen_rehearse_stop=True" in found[0][1]


def test_the_hubs_token_is_on_no_command_line_and_what_ends_the_rehearsal_clears_up() -> None:
    chosen = cpu_settings()
    answers = state(f"complete=5 {wanted(chosen)}")
    found = commands(operations.rehearse, answers, settings=chosen, token="hf_secret", steps=pinned_steps(chosen))
    (put, stdin), (run, _), (shown, _) = found
    assert put == "umask 077 && cat > /run/qwen-rehearsal.job"
    assert json.loads(stdin)["checkpoints"][0]["job"]["token"] == "hf_secret"
    assert not any("hf_secret" in line for line, _ in found)
    assert f"/opt/qwen/releases/{wanted(chosen)}/venv/bin/python" in json.loads(stdin)["unit"]
    assert "ExecStopPost=/usr/bin/python3 -B /usr/local/lib/qwen/rehearse.py restore" in run
    assert shown == "_show"


def test_the_check_reads_units_and_their_cards() -> None:
    said = ['one {"cards": ["GPU-a"], "host": "x"}', "two "]
    assert ServingCards().process(said) == {"one": ("GPU-a",), "two": ()}


ANSWERED: dict[str, Any] = {
    "engine": ENGINE.name,
    "answers": True,
    "blocked": [],
    "seconds": 91.4,
    "log": json.loads(json.dumps(asdict(EngineLog(kv_tokens=380_000, transports=("SHM/direct/direct",))))),
    "cards": {ENGINE.gpus[0]: 22_000},
    "last_lines": [],
}


def test_an_engine_that_fits_is_told_with_its_pool_and_the_room_that_is_left() -> None:
    text = "\n".join(lines(PLAN, [ANSWERED]))
    assert "engine1 fits and answers, 91 s" in text
    assert "KV pool: 380,000 tokens (plan: " in text
    assert f"card {ENGINE.gpus[0]}: 22,000 MiB in use" in text
    assert "note: the plan counts on peer access between the cards and NCCL took SHM" in text
    assert ok([ANSWERED])


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        ({"blocked": ["port 8000 is taken"]}, "port 8000 is taken"),
        ({"last_lines": ["torch.OutOfMemoryError: CUDA out of memory."]}, "card-memory: a card's memory ran out"),
        ({"last_lines": ["ValueError: To serve at least one request"]}, "kv-too-small: the KV cache does not hold"),
    ],
)
def test_an_engine_that_does_not_start_is_told_with_its_reason(failed: dict[str, Any], words: str) -> None:
    result = {**ANSWERED, "answers": False, "cards": {}, **failed}
    text = "\n".join(lines(PLAN, [result]))
    assert "does NOT fit or start as planned" in text
    assert words in text
    assert not ok([result])
    assert not ok([])


def test_a_log_survives_the_way_from_the_host() -> None:
    log = EngineLog(kv_tokens=5, transports=("P2P",), use=(RankUse((0, 1, 0), 1.0, 2.0, 0.5, 0.1, 0.0),))
    assert log_of(json.loads(json.dumps(asdict(log)))) == log


@pytest.mark.parametrize("line", ["{", "{}"])
def test_a_damaged_result_fails_its_host_alone(line: str) -> None:
    with pytest.raises(FactProcessError, match="could not be read"):
        RehearsalResult().process([line])


def test_weights_stay_away_whatever_they_are_called() -> None:
    sizes = {
        "config.json": 100,
        "model-1.safetensors": 5,
        "pytorch_model.bin": 5,
        "odd.data": 65 << 20,
        "vocab.json": 9,
    }
    files = tuple(FileEntry(name, size, None, "0" * 40) for name, size in sizes.items())
    kept = without_weights(Listing("c", files, "http://hub")).files
    assert [entry.path for entry in kept] == ["config.json", "vocab.json"]


def test_a_checkpoint_that_is_whole_lends_its_config(tmp_path: Path) -> None:
    whole, target = tmp_path / "models/a", tmp_path / "run/a"
    (whole / "chat").mkdir(parents=True)
    for name in ("manifest.json", "config.json", "model.safetensors", "chat/template.jinja"):
        (whole / name).write_text(name)
    rehearse.model({"directory": str(target), "whole": str(whole), "recipe": None, "job": {}}, "qwen", "python")
    assert sorted(path.name for path in target.rglob("*") if path.is_file()) == [
        "config.json",
        "manifest.json",
        "template.jinja",
    ]


def test_a_prepared_checkpoint_gets_the_config_that_the_preparation_would_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched, target = tmp_path / "base", tmp_path / "base.int8-head"

    def fetch(asked_for: dict[str, Any], user: str, python: str) -> None:
        fetched.mkdir()
        config = {
            "quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}, "ignore": ["lm_head"]}
        }
        (fetched / "config.json").write_text(json.dumps(config))

    monkeypatch.setattr(rehearse, "fetch", fetch)
    checkpoint = {"directory": str(target), "whole": "/none", "recipe": "int8-head", "job": {"directory": str(fetched)}}
    rehearse.model(checkpoint, "qwen", "python")
    made = json.loads((target / "config.json").read_text())["quantization_config"]
    assert made["ignore"] == []
    assert made["config_groups"]["group_0"]["weights"]["num_bits"] == 8


def test_an_archive_is_not_unpacked_for_a_rehearsal(tmp_path: Path) -> None:
    archive = tmp_path / "models.tar"
    archive.touch()
    with pytest.raises(RehearsalError, match="is an archive"):
        rehearse.fetch({"source": "path", "place": str(archive)}, "qwen", "python")

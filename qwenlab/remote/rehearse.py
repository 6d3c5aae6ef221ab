#!/usr/bin/env python3
"""rehearse.py run JOB | restore: start the planned engines with weights made up by vLLM, and say how they fare.

Of each checkpoint only config, tokenizer and the like are there: copied from a whole one on this host, or fetched. All
of it, the units among it, lies below /run, and the engines' caches in their private /tmp, so that nothing is left after
`restore`, which systemd calls however the rehearsal ends, nor after a power cut. The result is one JSON document at
/run/qwen-rehearsal.json. Exit codes: 0 the engines were tried (the result says how it went), 1 it did not come to that.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from qwenlab.preparation.recipes import RECIPES, mended_config
from qwenlab.rehearsal.engine_log import parse
from qwenlab.remote import LIBRARY
from qwenlab.remote.common.units import journal
from qwenlab.remote.gating.cards import check_cards, check_driver
from qwenlab.remote.gating.look import CONFIG, ETC, Gate, Problem
from qwenlab.remote.gating.room import check_port, check_room

RUN = Path("/run/qwen-rehearsal")
RESULT = Path("/run/qwen-rehearsal.json")
STOPPED = RUN / "stopped"
UMBRELLA = "qwen.service"
UNIT = Path("/run/systemd/system/qwen-rehearsal@.service")
SMALL = 64 << 20  # bytes; what is larger is weights
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack")
CHECKS = (check_driver, check_cards, check_room, check_port)
LAST_LINES = 60
POLL_S = 1.0


class RehearsalError(Exception):
    """It did not come to a start; the text says why."""


def ask(*command: str) -> str:
    """What a program prints."""
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout


def systemctl(*arguments: str) -> int:
    """Exit code of systemctl, which says nothing."""
    return subprocess.run(["systemctl", *arguments], capture_output=True, check=False).returncode


def unit_of(name: str) -> str:
    """The unit in which an engine's process is rehearsed."""
    return f"qwen-rehearsal@{name}.service"


def write(path: Path, text: str, mode: int = 0o644, group: str = "root") -> None:
    """A file with these rights."""
    path.touch(mode=0o600)
    shutil.chown(path, "root", group)
    path.chmod(mode)
    path.write_text(text)


def serving(cards: set[str], etc: Path = ETC) -> list[str]:
    """Engines of this host that are up or starting on one of these cards; without cards, all."""
    listed = ask("systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating", "qwen-engine@*")
    found = []
    for line in listed.splitlines():
        name = line.split()[0].removeprefix("qwen-engine@").removesuffix(".service")
        try:
            held = set(json.loads((etc / "engines" / f"{name}.gate.json").read_text())["cards"])
        except (OSError, ValueError, KeyError, TypeError):
            held = set()
        if not cards or not held or cards & held:
            found.append(name)
    return found


def make_room(job: dict[str, Any]) -> None:
    """Stop what serves on the cards when the job says so. Raises RehearsalError when it does not."""
    names = serving({card for engine in job["engines"] for card in engine["cards"]})
    if not names:
        return
    if not job["stop"]:
        raise RehearsalError(f"{', '.join(names)} serves on these cards")
    units = [f"qwen-engine@{name}.service" for name in names]
    # qwen.service fails when an engine stays down, and has to be started with it then
    umbrella = [UMBRELLA] if systemctl("is-active", UMBRELLA) == 0 else []
    STOPPED.write_text("\n".join([*units, *umbrella]))
    systemctl("stop", *units)


def model(checkpoint: dict[str, Any], user: str, python: str) -> None:
    """Config, tokenizer and the like of one checkpoint, without its weights. Raises RehearsalError."""
    target, whole = Path(checkpoint["directory"]), Path(checkpoint["whole"])
    if (whole / "manifest.json").exists() or (whole / ".complete").exists():
        copy_small(whole, target)
    else:
        fetch(checkpoint["job"], user, python)
        fetched = Path(checkpoint["job"]["directory"])
        if fetched != target:
            copy_small(fetched, target)
        if checkpoint["recipe"] is not None:
            path = target / "config.json"
            bits = RECIPES[checkpoint["recipe"]]
            path.write_text(json.dumps(mended_config(json.loads(path.read_text()), bits, [])))


def copy_small(source: Path, target: Path) -> None:
    """Copy a checkpoint's files but for its weights."""
    for path in sorted(source.resolve().rglob("*")):
        if path.is_file() and path.suffix not in WEIGHTS and path.stat().st_size <= SMALL:
            place = target / path.relative_to(source.resolve())
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


def fetch(job: dict[str, Any], user: str, python: str) -> None:
    """Fetch the small files as the service user does. Raises RehearsalError with the fetch's own words."""
    if job["source"] == "path" and Path(job["place"] or "").is_file():
        raise RehearsalError(
            f"{job['place']} (qwen_model_path) is an archive: unpack it, or fetch the checkpoint first"
        )
    folder, models = RUN / "fetch", RUN / "models"
    folder.mkdir()
    models.mkdir(exist_ok=True)
    path = folder / "job"
    write(path, json.dumps(job), 0o600)
    for owned in (path, folder, models):
        shutil.chown(owned, user)  # who reads the job removes it
    command = ["runuser", "-u", user, "--", python, "-B", f"{LIBRARY}/fetch_checkpoint.py", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    shutil.rmtree(folder)
    if done.returncode != 0:
        raise RehearsalError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "nothing was fetched")


def blocked(engine: dict[str, Any], wait_s: float) -> list[str]:
    """What of the gate's checks stands against a start, after waiting for what may pass."""
    deadline = time.monotonic() + wait_s
    while True:
        found = [problem for unit in engine["units"] for problem in against(Gate(unit["gate"]))]
        lasting = any(problem.code == CONFIG for problem in found)
        if not found or lasting or time.monotonic() >= deadline:
            return [problem.text for problem in found]
        time.sleep(POLL_S)


def against(gate: Gate) -> list[Problem]:
    """What stands against a start now."""
    return [problem for check in CHECKS for problem in check(gate)]


def prepare(job: dict[str, Any]) -> None:
    """Everything that the engines are started with."""
    for checkpoint in job["checkpoints"]:
        model(checkpoint, job["user"], job["python"])
    for engine in job["engines"]:
        for unit in engine["units"]:
            # JSON is YAML
            write(RUN / f"{unit['name']}.yaml", json.dumps(unit["args"]), 0o640, job["group"])
            write(RUN / f"{unit['name']}.env", unit["environment"], 0o640, job["group"])
    UNIT.parent.mkdir(parents=True, exist_ok=True)
    UNIT.write_text(job["unit"])
    if any(engine["cards"] for engine in job["engines"]):
        subprocess.run(["python3", f"{LIBRARY}/cards.py"], check=False)  # device nodes by UUID, as the units name them
    systemctl("daemon-reload")


def attempt(engine: dict[str, Any], wait_s: float) -> dict[str, Any]:
    """Start one engine and say how it went."""
    units = [unit_of(unit["name"]) for unit in engine["units"]]
    reasons = blocked(engine, wait_s)
    began = time.monotonic()
    answers = not reasons and systemctl("start", *units) == 0
    took = time.monotonic() - began
    said = "" if reasons else "\n".join(journal(unit) for unit in units)
    return {
        "engine": engine["name"],
        "answers": answers,
        "blocked": reasons,
        "seconds": round(took, 1),
        "log": asdict(parse(said)),
        "cards": used(engine["cards"]) if answers else {},
        "last_lines": [] if answers else said.splitlines()[-LAST_LINES:],
    }


def used(cards: list[str]) -> dict[str, int]:
    """MiB in use by card, all programs together."""
    rows = ask("nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits") if cards else ""
    cells = [[cell.strip() for cell in row.split(",")] for row in rows.splitlines()]
    return {row[0]: int(row[1]) for row in cells if len(row) == 2 and row[0] in cards and row[1].isdigit()}


def run(job: dict[str, Any]) -> int:
    """Try every engine of the job; the exit code."""
    # of a rehearsal before this one that no `restore` followed
    if RUN.exists():
        restore()
    RUN.mkdir()
    RUN.chmod(0o755)
    RESULT.unlink(missing_ok=True)
    try:
        make_room(job)
        prepare(job)
        # one after the other, and all stay up: as they will serve
        found = [attempt(engine, job["wait_s"]) for engine in job["engines"]]
    except (RehearsalError, OSError, ValueError) as error:
        print(f"not rehearsed: {error}", file=sys.stderr, flush=True)
        return 1
    write(RESULT, json.dumps(found))
    return 0


def restore() -> int:
    """Take everything away that a rehearsal made, and start what it stopped."""
    stopped = STOPPED.read_text().split() if STOPPED.exists() else []
    systemctl("stop", "qwen-rehearsal@*.service")
    systemctl("reset-failed", "qwen-rehearsal@*.service")
    UNIT.unlink(missing_ok=True)
    systemctl("daemon-reload")
    for path in RUN.iterdir() if RUN.exists() else ():
        if path != STOPPED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    code = systemctl("start", *stopped) if stopped else 0
    shutil.rmtree(RUN, ignore_errors=True)
    return code


def main(argv: list[str]) -> int:
    """Run one verb."""
    if argv[:1] == ["restore"]:
        return restore()
    os.umask(0o022)
    path = Path(argv[1])
    job: dict[str, Any] = json.loads(path.read_text())
    path.unlink()  # it may hold the hub's token
    return run(job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

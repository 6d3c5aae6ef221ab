#!/usr/bin/env python3
"""calibrate.py measure JOB | restore: start engines without a pinned KV pool and write down what vLLM says.

Everything that a measuring start needs lies below /run: the configuration without the pin, and a drop-in of the
engine's own unit that names it. So the files of the served plan stay as they are, and a power cut leaves them alone in
force. The record is written at the end, whole or not at all; the deploy that follows makes a plan of it and restarts
the engine with its pin. `restore` takes away what a measuring run that was killed has left, and starts the engines as
planned. Exit codes: 0 done, 1 an engine did not start or did not say what is needed. Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from qwenlab.rehearsal.engine_log import EngineLog, parse
from qwenlab.remote import LIBRARY
from qwenlab.remote.common.units import journal

ETC = Path("/etc/qwen")
RECORD = ETC / "calibration.json"
OWNER = 0
RUN = Path("/run/qwen-calibrate")
UNITS = Path("/run/systemd/system")
DROP_IN = "calibrate.conf"
LINES = 30
STARTS = 2  # a cold start compiles, and is measured again from the caches
DROP_IN_TEXT = """\
# for one start: plays/calibrate.py measures the engine without its pin
[Service]
{environment}
ExecStart=
ExecStart={python} {library}/engine.py {config}
Restart=no
"""


class CalibrationError(Exception):
    """An engine could not be measured; the text says why and what to look at."""


def systemctl(*arguments: str) -> int:
    """Exit code of systemctl."""
    return subprocess.run(["systemctl", *arguments], check=False).returncode


def unit_of(name: str) -> str:
    """The unit of an engine's process."""
    return f"qwen-engine@{name}.service"


def write(path: Path, text: str, mode: int, group: int = -1) -> None:
    """A file, whole or not at all, on the disk when this returns."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as handle:
        os.fchown(handle.fileno(), OWNER, group)
        os.fchmod(handle.fileno(), mode)
        handle.write(text)
        handle.flush()
        os.fsync(handle.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def put_aside(engine: dict[str, Any], python: str, environment: dict[str, str]) -> None:
    """Let the engine's next start be a measuring one."""
    RUN.mkdir(exist_ok=True)
    RUN.chmod(0o755)
    for unit in engine["units"]:
        config = RUN / f"{unit['name']}.yaml"
        # JSON is YAML; readable for the engine as its own configuration is
        group = (ETC / "engines" / f"{unit['name']}.yaml").stat().st_gid
        write(config, json.dumps(unit["args"]), 0o640, group)
        folder = UNITS / f"{unit_of(unit['name'])}.d"
        folder.mkdir(parents=True, exist_ok=True)
        variables = "\n".join(f"Environment={name}={value}" for name, value in environment.items())
        text = DROP_IN_TEXT.format(environment=variables, python=python, library=LIBRARY, config=config)
        write(folder / DROP_IN, text, 0o644)
    systemctl("daemon-reload")


def take_away() -> list[str]:
    """Remove what measuring starts needed; the units that had it."""
    found = sorted(UNITS.glob(f"qwen-engine@*.service.d/{DROP_IN}"))
    for path in found:
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    shutil.rmtree(RUN, ignore_errors=True)
    if found:
        systemctl("daemon-reload")
    return [path.parent.name.removesuffix(".d") for path in found]


def start(engine: dict[str, Any]) -> EngineLog:
    """Start the engine for measuring and read what it says. Raises CalibrationError."""
    units = [unit_of(unit["name"]) for unit in engine["units"]]
    systemctl("reset-failed", *units)
    if systemctl("restart", *units) != 0:
        last = "\n".join(line for unit in units for line in journal(unit).splitlines()[-LINES:])
        raise CalibrationError(f"{last}\nengine {engine['name']} does not start without a pinned pool: see above")
    return parse("\n".join(journal(unit) for unit in units))


def measured(engine: dict[str, Any]) -> dict[str, Any]:
    """The measurement of one engine (qwenlab.measurement.Measurement). Raises CalibrationError."""
    for _ in range(STARTS):
        log = start(engine)
        if not log.cold:
            break
        print(f"engine {engine['name']}: compiled anew, started once more from the caches", flush=True)
    ranks = int(engine["ranks"])
    if ranks and len(log.use) != ranks:
        raise CalibrationError(
            f"engine {engine['name']} has {ranks} ranks and {len(log.use)} of them said what they use: this vLLM says "
            "it in other words; report it with journalctl -u 'qwen-engine@*'"
        )
    if log.kv_tokens is None:
        raise CalibrationError(f"engine {engine['name']} did not say how large its KV pool is: journalctl -u 'qwen*'")
    return {
        "engine": engine["name"],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "inputs": engine["inputs"],
        "beside_gib": [use.beside_gib for use in log.use] if ranks else [],
        "kv_available_gib": list(log.kv_available_gib),
        "kv_tokens": log.kv_tokens,
        "transports": list(log.transports),
        "all_reduce": list(log.all_reduce),
        "multicast": log.multicast,
        "cold": log.cold,
    }


def record(found: list[dict[str, Any]], names: list[str], path: Path) -> None:
    """Write measurements down; those of other planned engines stay."""
    try:
        known = json.loads(path.read_text())["engines"]
    except (OSError, ValueError, KeyError, TypeError):
        known = []
    fresh = {one["engine"] for one in found}
    kept = [one for one in known if one["engine"] in names and one["engine"] not in fresh]
    engines = sorted([*kept, *found], key=lambda one: str(one["engine"]))
    write(path, json.dumps({"schema": 1, "engines": engines}, indent=1) + "\n", 0o644)


def measure(job: dict[str, Any]) -> int:
    """Measure the engines of a job; the exit code."""
    try:
        found = []
        for engine in job["engines"]:
            put_aside(engine, job["python"], job["environment"])
            found.append(measured(engine))
        record(found, job["names"], RECORD)
    except CalibrationError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    # the engines go on serving as they are until the plan with their pin is in place
    take_away()
    return 0


def restore() -> int:
    """Bring the engines back that a failed or killed run has left without their pin."""
    units = take_away()
    if units:
        systemctl("reset-failed", *units)
        return systemctl("restart", *units)
    return 0


def main(argv: list[str]) -> int:
    """Run one verb."""
    if argv[:1] == ["restore"]:
        return restore()
    path = Path(argv[1])
    job: dict[str, Any] = json.loads(path.read_text())
    return measure(job)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Every file that a deploy puts on a host, from plan and settings alone: pure, so that it can be reviewed and tested.

    for path, file in render(plan, settings).items(): ...

Secrets are not among them: they go to the host by another way (qwenlab/operations/secret.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from qwenlab.planner.plan import Checkpoint, EnginePlan, HostPlan
from qwenlab.settings import Settings

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
ETC = "/etc/qwen"
PLAN = f"{ETC}/plan.json"
ENGINES = f"{ETC}/engines"
SECRETS = f"{ETC}/secrets"
API_KEY = f"{SECRETS}/api_key"
HUB_TOKEN = f"{SECRETS}/hub_token"
LIBRARY = "/usr/local/lib/qwen"
UNITS = "/etc/systemd/system"

PROGRAMS = {
    # file below /usr/local/lib/qwen -> what it is for
    "fetch_uv.py": "puts the pinned uv in place",
    "build_release.py": "builds an engine release",
    "fetch_checkpoint.py": "fetches a checkpoint from the hub",
    "engine.py": "runs one engine and tells systemd when it answers",
    "fingerprint": "says whether an engine runs with the files that lie there now",
    "engines-up": "lets qwen.service succeed only when every engine answers",
}


@dataclass(frozen=True)
class RemoteFile:
    """Content and rights of one file on a host."""

    content: str
    mode: str = "644"
    user: str = "root"
    group: str = "root"


@dataclass(frozen=True)
class Unit:
    """One instance of qwen-engine@.service: an engine, or one process of an engine that runs as several."""

    name: str
    args: dict[str, Any]
    env: dict[str, str]
    port: int | None


def render(plan: HostPlan, settings: Settings) -> dict[str, RemoteFile]:
    """Path to file, for the plan, its engines and their units."""
    units = [unit for engine in plan.engines for unit in units_of(engine, settings)]
    found = {PLAN: RemoteFile(plan.model_dump_json(by_alias=True, indent=2) + "\n")}
    for unit in units:
        found[f"{ENGINES}/{unit.name}.yaml"] = RemoteFile(_yaml(unit.args), "640", group=settings.user)
        found[f"{ENGINES}/{unit.name}.env"] = RemoteFile(_environment(unit.env), "640", group=settings.user)
    for name in ("qwen.service", "qwen-engine@.service"):
        text = _template(f"systemd/{name}.j2", settings=settings, units=[unit.name for unit in units])
        found[f"{UNITS}/{name}"] = RemoteFile(text)
    return found


def programs(settings: Settings) -> dict[str, RemoteFile]:
    """The programs that run on the host, by path."""
    folder = files("qwenlab.remote")
    texts = {name: folder.joinpath(name).read_text() for name in PROGRAMS}
    return {
        f"{LIBRARY}/{name}": RemoteFile(text.replace("@RELEASES@", settings.release_directory), "755")
        for name, text in texts.items()
    }


def units_of(engine: EnginePlan, settings: Settings) -> list[Unit]:
    """The unit instances of one engine, in rank order. Only the first listens."""
    args = {
        "model": checkpoint_directory(engine.checkpoint, settings),
        "served-model-name": list(settings.served_model_names),
        "host": settings.bind_address,
        "port": engine.port,
        **engine.args,
    }
    cards = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(engine.gpus)} if engine.gpus else {}
    if not engine.processes:
        return [Unit(engine.name, args, {**cards, **engine.env}, engine.port)]
    units = []
    for process in engine.processes:
        name = engine.name if process.node_rank == 0 else f"{engine.name}-{process.node_rank}"
        own = {"CUDA_VISIBLE_DEVICES": ",".join(process.gpus)} if process.gpus else {}
        env = {**cards, **engine.env, **own, **process.env}
        units.append(Unit(name, {**args, **process.args}, env, engine.port if process.node_rank == 0 else None))
    return units


def checkpoint_directory(checkpoint: Checkpoint, settings: Settings) -> str:
    """Where a checkpoint lies on the host."""
    return f"{settings.model_directory}/{checkpoint.repo}/{checkpoint.revision}"


def _yaml(args: dict[str, Any]) -> str:
    return yaml.safe_dump(args, sort_keys=False, default_flow_style=False, width=1000)


def _environment(env: dict[str, str]) -> str:
    """systemd's EnvironmentFile format; JSON quoting is a subset of it for printable text."""
    return "".join(f"{name}={json.dumps(value)}\n" for name, value in env.items())


def _template(name: str, **values: Any) -> str:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    paths = {"api_key": API_KEY, "engines": ENGINES, "library": LIBRARY}
    return environment.get_template(name).render(paths=paths, **values)

"""Every file that a deploy puts on a host, from plan and settings alone: pure, so that it can be reviewed and tested.

    for path, file in render(plan, settings).items(): ...

Secrets are not among them: API key and certificate are put in place by tasks/rollout.py, and the hub's token stays on
no host. Neither are the programs that run there (qwenlab/programs.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.remote import LIBRARY
from qwenlab.service.gate_file import END, Start, gate_file
from qwenlab.settings import Settings

PACKAGED = Path(__file__).parent / "templates"  # in a wheel; in a clone they lie at its top
TEMPLATES = PACKAGED if PACKAGED.is_dir() else Path(__file__).resolve().parents[1] / "templates"
ETC = "/etc/qwen"
PLAN = f"{ETC}/plan.json"
INVENTORY = f"{ETC}/inventory.json"
APT_CONF = "/etc/apt/apt.conf.d/90qwenlab"
ENGINES = f"{ETC}/engines"
JOURNAL_CONF = "/etc/systemd/journald.conf.d/qwenlab.conf"
CALIBRATION = f"{ETC}/calibration.json"
SECRETS = f"{ETC}/secrets"
API_KEY = f"{SECRETS}/api_key"
UNITS = "/etc/systemd/system"
ENGINE_UNIT = f"{UNITS}/qwen-engine@.service"


@dataclass(frozen=True)
class RemoteFile:
    """Content and rights of one file on a host. Content may be secret, so it is not part of what is printed."""

    content: str = field(repr=False)
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
    gpus: tuple[str, ...] = ()


def render(plan: HostPlan, settings: Settings) -> dict[str, RemoteFile]:
    """Path to file, for the plan, its engines and their units."""
    found = {PLAN: RemoteFile(plan.model_dump_json(by_alias=True, indent=2) + "\n")}
    names = []
    for engine in plan.engines:
        for unit in units_of(engine, settings):
            names.append(unit.name)
            found |= _engine_files(engine, unit, settings)
    for name in ("qwen.service", "qwen-engine@.service", "qwen.target", "qwen.slice", *_card_units(settings)):
        found[f"{UNITS}/{name}"] = RemoteFile(template(f"systemd/{name}.j2", settings=settings, units=names))
    found[JOURNAL_CONF] = RemoteFile(template("systemd/journal.conf.j2", settings=settings))
    return found


def engine_unit(settings: Settings) -> str:
    """The template unit of engines."""
    return template("systemd/qwen-engine@.service.j2", settings=settings, units=[])


def _card_units(settings: Settings) -> tuple[str, ...]:
    return ("qwen-cards.service",) if settings.engine == "cuda" else ()


def _engine_files(engine: EnginePlan, unit: Unit, settings: Settings) -> dict[str, RemoteFile]:
    """What one unit instance is started with."""
    start = Start(
        gpus=unit.gpus,
        host=settings.engine_address,
        port=unit.port,
        wait_s=settings.gate_wait_s,
        release=f"{settings.release_directory}/current",
        home=settings.home,
        checkpoints=tuple(
            one.directory(settings.model_directory) for one in (engine.checkpoint, engine.drafter) if one
        ),
        files=tuple(f"{ENGINES}/{unit.name}.{kind}" for kind in ("yaml", "env")),
        secrets=(API_KEY,) if settings.has_key else (),
    )
    asked = json.dumps(gate_file(engine, start), indent=1)
    files = {
        f"{ENGINES}/{unit.name}.yaml": RemoteFile(_yaml(unit.args) + END, "640", group=settings.user),
        f"{ENGINES}/{unit.name}.env": RemoteFile(environment_file(unit.env) + END, "640", group=settings.user),
        f"{ENGINES}/{unit.name}.gate.json": RemoteFile(f"{asked}\n", "640", group=settings.user),
    }
    if unit.gpus:
        text = template("systemd/cards.conf.j2", gpus=unit.gpus)
        files[f"{drop_in(unit.name)}/cards.conf"] = RemoteFile(text)
    return files


def drop_in(name: str) -> str:
    """Folder of what is set for one engine's unit alone."""
    return f"{UNITS}/qwen-engine@{name}.service.d"


def apt_file(settings: Settings) -> RemoteFile:
    """apt's drop-in: wait for another apt, and go through the proxies; root's alone where those ask for a password."""
    secret = any("@" in urlsplit(proxy).netloc for proxy in (settings.http_proxy, settings.https_proxy) if proxy)
    return RemoteFile(_apt_conf(settings), "600" if secret else "644")


def _apt_conf(settings: Settings) -> str:
    lines = [f'DPkg::Lock::Timeout "{settings.apt_lock_timeout_s}";']
    lines += [f'Acquire::http::Proxy "{settings.http_proxy}";'] if settings.http_proxy else []
    lines += [f'Acquire::https::Proxy "{settings.https_proxy}";'] if settings.https_proxy else []
    return "\n".join(lines) + "\n"


def units_of(engine: EnginePlan, settings: Settings) -> list[Unit]:
    """The unit instances of one engine, in rank order. Only the first listens."""
    args = {
        "model": engine.checkpoint.directory(settings.model_directory),
        "served-model-name": list(settings.served_model_names),
        "host": settings.engine_address,
        "port": engine.port,
        # with vLLM's own 0 the engine is killed at once, and streams then hang until systemd kills the server
        # (vLLM 0.32.0 v1/engine/utils.py; streams of a stopped service ended after TimeoutStopSec= and not before)
        "shutdown-timeout": settings.stop_timeout_s,
        # asked for every few seconds by gateway, liveness and Prometheus: the journal shall tell of people's requests
        "disable-access-log-for-endpoints": "/health,/metrics",
        **engine.args,
    }
    cards = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(engine.gpus)} if engine.gpus else {}
    if not engine.processes:
        return [Unit(engine.name, args, {**cards, **engine.env}, engine.port, engine.gpus)]
    units = []
    for process in engine.processes:
        name = engine.name if process.node_rank == 0 else f"{engine.name}-{process.node_rank}"
        own = {"CUDA_VISIBLE_DEVICES": ",".join(process.gpus)} if process.gpus else {}
        env = {**cards, **engine.env, **own, **process.env}
        port = engine.port if process.node_rank == 0 else None
        units.append(Unit(name, {**args, **process.args}, env, port, process.gpus))
    return units


def _yaml(args: dict[str, Any]) -> str:
    return yaml.safe_dump(args, sort_keys=False, default_flow_style=False, width=1000)


def environment_file(env: Mapping[str, str]) -> str:
    """systemd's EnvironmentFile format for values of one line.

    In double quotes a backslash stays where it is unless `"`, `\\`, `$` or a backtick follows, so that JSON's quoting
    would hand on `\\u00fc` and `\\t` as they stand (systemd 252 basic/env-file.c).
    """
    return "".join(f"{name}={_quoted(value)}\n" for name, value in env.items())


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def template(name: str, **values: Any) -> str:
    """A file from templates/, which also sees where things lie (`paths`)."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    paths = {"api_key": API_KEY, "engines": ENGINES, "etc": ETC, "library": LIBRARY}
    return environment.get_template(name).render(paths=paths, **values)

"""Rehearsal: what a host is asked to try before weights are fetched, and what came of it for a person. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from qwenlab.planner.plan import Checkpoint, EnginePlan, HostPlan
from qwenlab.rehearsal.engine_log import EngineLog, RankUse
from qwenlab.remote import LIBRARY
from qwenlab.render import engine_unit, environment_file, units_of
from qwenlab.service.calibration import SHOW_TRANSPORTS, transports_noted
from qwenlab.service.diagnosis import diagnose
from qwenlab.service.gate_file import Start, gate_file
from qwenlab.settings import Settings

RUN = "/run/qwen-rehearsal"
RESULT = f"{RUN}.json"
MODELS = f"{RUN}/models"
HOME = "/tmp"  # the unit's private one: caches of a model that does not exist are of no use to anybody
GIB_IN_MIB = 1024


def job(
    plan: HostPlan, settings: Settings, release: str, fetch: Callable[[Checkpoint], dict[str, Any]]
) -> dict[str, Any]:
    """What rehearse.py is asked for.

    Args:
        plan: the host's plan.
        settings: the host's settings.
        release: directory of the release to try.
        fetch: the job that fetches a checkpoint to where a deploy would put it (qwenlab/remote/checkpoint/job.py).
    """
    named = [one for engine in plan.engines for one in (engine.checkpoint, engine.drafter) if one is not None]
    return {
        "python": f"{release}/venv/bin/python",
        "user": settings.user,
        "group": settings.user,
        "stop": settings.rehearse_stop,
        "wait_s": settings.gate_wait_s,
        "unit": unit(settings, release),
        "checkpoints": [_checkpoint(one, settings, fetch) for one in dict.fromkeys(named)],
        "engines": [_engine(one, settings, release) for one in plan.engines],
    }


def unit(settings: Settings, release: str) -> str:
    """The engines' own unit with another configuration, home and release, without key, watch and restarts."""
    quiet = {"api_key": None, "api_key_file": None, "generate_api_key": False, "bind": None, "home": HOME}
    text = engine_unit(settings.model_copy(update={**quiet, "liveness_interval_s": 0}))
    # an umbrella that is stopped or started concerns engines that serve
    text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("PartOf="))
    open_network = "" if settings.engine_on_loopback else "IPAddressDeny=\nIPAddressAllow=\n"
    variables = " ".join(f"{name}={value}" for name, value in SHOW_TRANSPORTS.items())
    return (
        f"{text}\n# the rehearsal's own\n[Service]\nEnvironment=QWEN_ENGINE=rehearsal-%i {variables}\n"
        f"EnvironmentFile=\nEnvironmentFile={RUN}/%i.env\nExecStartPre=\nExecStart=\n"
        f"ExecStart={release}/venv/bin/python {LIBRARY}/engine.py {RUN}/%i.yaml\nRestart=no\n{open_network}"
    )


def _checkpoint(
    checkpoint: Checkpoint, settings: Settings, fetch: Callable[[Checkpoint], dict[str, Any]]
) -> dict[str, Any]:
    base = checkpoint.model_copy(update={"preparation": None})
    own = fetch(base)
    fetched = {
        **own,
        "environment": {**own.get("environment", {}), "HF_HOME": f"{MODELS}/.huggingface"},
        "directory": base.directory(MODELS),
        "models": MODELS,
        "status": f"{MODELS}/.fetch.json",
        "weights": False,
        "verify": "off",
    }
    fetched.pop("prepare", None)
    if fetched["source"] == "peer":
        fetched["source"] = "hub"
    return {
        "directory": checkpoint.directory(MODELS),
        "whole": checkpoint.directory(settings.model_directory),
        "recipe": checkpoint.preparation,
        "job": fetched,
    }


def _engine(engine: EnginePlan, settings: Settings, release: str) -> dict[str, Any]:
    units = []
    for one in units_of(engine, settings):
        start = Start(
            gpus=one.gpus,
            host="127.0.0.1",
            port=one.port,
            wait_s=settings.gate_wait_s,
            release=release,
            home="/var/tmp",
        )
        args = {**_moved(one.args, settings), "host": "127.0.0.1", "load-format": "dummy"}
        environment = environment_file(_moved(one.env, settings))
        units.append({"name": one.name, "args": args, "environment": environment, "gate": gate_file(engine, start)})
    return {"name": engine.name, "cards": list(engine.gpus), "units": units}


def _moved(values: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Arguments or variables with every path below the model directory or the home replaced by the rehearsal's."""
    text = json.dumps(dict(values), ensure_ascii=False)
    for before, after in ((settings.model_directory, MODELS), (settings.home, HOME)):
        text = text.replace(f'"{before}/', f'"{after}/')
    moved: dict[str, Any] = json.loads(text)
    return moved


def in_the_way(plan: HostPlan, serving: Mapping[str, Sequence[str]]) -> list[str]:
    """Engines that serve on a card of the plan; where one of both has no cards, they share the processor."""
    cards = {card for engine in plan.engines for card in engine.gpus}
    return sorted(name for name, held in serving.items() if not cards or not held or cards & set(held))


def ok(results: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every engine answered."""
    return bool(results) and all(one["answers"] for one in results)


def lines(plan: HostPlan, results: Sequence[Mapping[str, Any]]) -> list[str]:
    """What came of it, for a person."""
    planned = {engine.name: engine for engine in plan.engines}
    return [line for one in results if one["engine"] in planned for line in _lines(planned[one["engine"]], one)]


def _lines(engine: EnginePlan, result: Mapping[str, Any]) -> list[str]:
    log = log_of(result["log"])
    if not result["answers"]:
        said = [str(line) for line in result["last_lines"]]
        found = [f"  {one.code}: {one.text}" for one in diagnose(said)]
        blocked = [f"  {text}" for text in result["blocked"]]
        last = [f"  | {line}" for line in said[-20:]] if not blocked else []
        return [f"{engine.name} does NOT fit or start as planned", *blocked, *last, *found]
    rows = [f"{engine.name} fits and answers, {result['seconds']:.0f} s from start to the first answer"]
    tokens = "of a size that vLLM did not say" if log.kv_tokens is None else f"{log.kv_tokens:,} tokens"
    wanted = f" (plan: {engine.kv.tokens:,})" if engine.kv else ""
    rows.append(f"  KV pool: {tokens}{wanted}, longest context {engine.max_model_len:,}")
    for rank in engine.memory:
        if rank.gpu in result["cards"]:
            free = rank.total * GIB_IN_MIB - result["cards"][rank.gpu]
            rows.append(
                f"  card {rank.gpu}: {result['cards'][rank.gpu]:,} MiB in use, {free:,.0f} free "
                f"(plan: {rank.margin * GIB_IN_MIB:,.0f} kept free)"
            )
    if engine.tp * engine.pp > 1 and engine.gpus:
        ways = ", ".join(log.transports) or "not said"
        rows.append(f"  between ranks: {ways}; all-reduce: {', '.join(log.all_reduce) or 'not said'}")
    return [*rows, *(f"  note: {text}" for text in transports_noted(engine, log.transports, log.all_reduce))]


def log_of(fields: Mapping[str, Any]) -> EngineLog:
    """An `EngineLog` that came as JSON."""
    values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in fields.items()}
    uses = tuple(RankUse(**{**use, "rank": tuple(use["rank"])}) for use in fields.get("use", ()))
    values["use"] = uses
    return EngineLog(**values)

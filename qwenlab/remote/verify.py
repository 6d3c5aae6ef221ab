#!/usr/bin/env python3
"""verify.py [--limit PERCENT] NAME...: a small fixed battery against engines of this host; exit 1 when one fails.

Asks each engine named in /etc/qwen/plan.json over its own API and leaves the result in
/var/lib/qwenlab/verify/NAME.json beside the one before. What only a trained model can do (know a fact, call a tool,
find a needle, not loop) is judged where the plan serves one; the cpu engine serves any small checkpoint, and there only
the mechanics are judged: the result says so. A rate that fell by more than the limit since the last good run fails.
Standard library only.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from qwenlab.remote.battery.checks import CHECKS, battery
from qwenlab.remote.battery.server import Engine
from qwenlab.remote.common.documents import document
from qwenlab.remote.common.engine_api import address

__all__ = ["CHECKS", "main", "regressions", "table", "verify"]

ETC = Path("/etc/qwen")
RESULTS = Path("/var/lib/qwenlab/verify")
KEY = ETC / "secrets/api_key"


def verify(plan: dict[str, Any], settings: dict[str, Any], key: str | None, limit_percent: float) -> dict[str, Any]:
    """Run the battery against one engine and compare with its last result.

    Args:
        plan: the engine's part of plan.json.
        settings: what the engine is started with (its YAML file).
    """
    models = settings.get("served-model-name") or [settings["model"]]
    engine = Engine(plan, address(settings.get("host"), plan["port"]), key, models[0], trained=bool(plan["gpus"]))
    checks = battery(engine)
    current = Path(settings["release"])
    result = {
        "engine": plan["name"],
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "release": current.resolve().name,
        "driver": driver(),
        "subject": subject(plan),
        "judged": "answers judged" if engine.trained else "mechanics judged, not what a small checkpoint says",
        "checks": checks,
        "rates": engine.rates,
        "predicted": {k: v for k, v in (plan.get("predicted") or {}).items() if v is not None},
    }
    file = RESULTS / f"{plan['name']}.json"
    before = document(file)
    result["baseline"] = baseline(result, before)
    result["regressions"] = regressions(engine.rates, result["baseline"], limit_percent)
    result["ok"] = not result["regressions"] and all(row["ok"] is not False for row in checks)
    RESULTS.mkdir(parents=True, exist_ok=True)
    if before:
        file.replace(file.with_suffix(".before.json"))
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(result, indent=1) + "\n")
    fresh.rename(file)
    return result


def subject(plan: dict[str, Any]) -> list[Any]:
    """What rates depend on beside release and driver: with other cards, weights or lengths they are no regression."""
    return [plan["gpus"], plan.get("checkpoint"), plan.get("speculation"), plan["max_model_len"]]


def baseline(now: dict[str, Any], before: dict[str, Any]) -> dict[str, float]:
    """The rates of the last good run of the same subject: a regression that was told once stays one."""
    if not before or before.get("subject", now["subject"]) != now["subject"]:
        return {}
    known: dict[str, float] = before.get("rates", {}) if before.get("ok", True) else before.get("baseline", {})
    return known


def regressions(rates: dict[str, float], known: dict[str, float], limit_percent: float) -> list[str]:
    """Rates that fell by more than the limit below those of the baseline."""
    return [
        f"{name} fell from {known[name]} to {rate}"
        for name, rate in rates.items()
        if name in known and rate < known[name] * (1 - limit_percent / 100)
    ]


def table(result: dict[str, Any]) -> str:
    """The result for a person."""
    marks = {True: "ok", False: "FAILED", None: "-"}
    lines = [f"engine {result['engine']}: release {result['release']}, {result['judged']}"]
    lines += [f"  {row['name']:<11} {marks[row['ok']]:<7} {row['detail']}" for row in result["checks"]]
    for name, rate in result["rates"].items():
        predicted = result["predicted"].get(name)
        lines.append(f"  {name:<18} {rate}" + (f" (plan: {predicted:.0f})" if predicted else ""))
    lines += [f"  REGRESSION  {text}" for text in result["regressions"]]
    if result["regressions"]:
        lines.append(f"  if this is how it shall be: rm {RESULTS}/{result['engine']}.json")
    return "\n".join(lines)


def driver() -> str | None:
    """Version of the NVIDIA module; None without one."""
    try:
        return Path("/sys/module/nvidia/version").read_text().strip()
    except OSError:
        return None


def main(argv: list[str]) -> int:
    """Verify the engines that are named, or all of the plan."""
    parser = argparse.ArgumentParser(description="A small fixed battery against engines of this host.")
    parser.add_argument("--limit", type=float, default=20.0, help="percent by which a rate may fall")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(argv)
    plan = document(ETC / "plan.json")
    if not plan:
        print(f"{ETC}/plan.json is missing or damaged: deploy again", file=sys.stderr)
        return 1
    key = KEY.read_text().strip() if KEY.exists() else None
    results = []
    for engine in plan["engines"]:
        if options.names and engine["name"] not in options.names:
            continue
        gate = document(ETC / "engines" / f"{engine['name']}.gate.json")
        arguments = {"host": gate.get("host"), "release": gate.get("release", "/opt/qwen/current"), **served(engine)}
        results.append(verify(engine, arguments, key, options.limit))
    good = all(result["ok"] for result in results)
    print("\n".join(table(result) for result in results), file=sys.stdout if good else sys.stderr)
    return 0 if good else 1


def served(engine: dict[str, Any]) -> dict[str, Any]:
    """The names under which the engine serves, from its YAML file (a list that vLLM's settings write line by line)."""
    lines = (ETC / "engines" / f"{engine['name']}.yaml").read_text().splitlines()
    start = next((place for place, line in enumerate(lines) if line.startswith("served-model-name:")), None)
    names = []
    for line in lines[start + 1 :] if start is not None else []:
        if not line.startswith("- "):
            break
        names.append(line[2:].strip().strip("'\""))
    model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model:"))
    return {"model": model, "served-model-name": names}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

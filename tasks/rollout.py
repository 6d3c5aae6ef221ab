"""What serves is exchanged: files, release, restart, verification; `qwen_serial` hosts at a time."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from qwenlab.operations import calibration, cuda, engine, gateway, generation, paths, rollout, service, verification
from qwenlab.operations.rollout import Step
from qwenlab.programs import programs
from qwenlab.render import API_KEY, RemoteFile
from tasks.engine import build_steps
from tasks.host import directories
from tasks.settings import Desired


@deploy("Roll out")
def roll_out(desired: Desired) -> None:
    """Let every host serve as asked; with `qwen_serial`, no host is touched once another failed."""
    rollout.in_turn(name="Serve as asked", steps=steps(desired), limit=desired.settings.serial)


@deploy("Calibrate")
def calibrate(desired: Desired) -> None:
    """Measure engines for which no measurement holds, then serve with what was found; hosts take turns as ever."""
    settings = desired.settings
    measuring = (
        Step("Directories", paths.directories, {"wanted": directories(settings)}),
        Step("Programs", paths.files, {"files": programs(settings)}),
        Step(
            "Engines without their pin",
            calibration.measure,
            {"settings": settings, "steps": build_steps(settings, desired.bundle)},
        ),
    )
    rollout.in_turn(name="Measure, then serve", steps=(*measuring, *steps(desired)), limit=settings.serial)


def steps(desired: Desired) -> tuple[Step, ...]:
    """What a host's turn consists of."""
    settings = desired.settings
    asked = {"settings": settings}
    compiler = [Step("CUDA_HOME of the engines", cuda.environment, asked)] if settings.engine == "cuda" else []
    return (
        *compiler,
        _key(desired),
        Step(
            "Plan, engine files and units", service.configure, {**asked, "steps": build_steps(settings, desired.bundle)}
        ),
        Step("Gateway", gateway.configure, {**asked, "pem": desired.secrets.gateway_pem}),
        Step("Current release", engine.switch, {**asked, "steps": build_steps(settings, desired.bundle)}),
        Step("Every engine answers", service.serve, asked),
        Step("One endpoint", gateway.activate, asked),
        *(_verified(desired) if settings.verify else ()),
        Step("Last good generation", generation.remember),
    )


def _key(desired: Desired) -> Step:
    key = desired.secrets.api_key
    if not desired.settings.has_key:
        return Step("No API key", paths.absent, {"paths": (API_KEY,)})
    if key is None:
        return Step("API key", service.generated_key)
    return Step("API key", paths.files, {"files": {API_KEY: RemoteFile(f"{key}\n", "600")}})


def _verified(desired: Desired) -> tuple[Step, ...]:
    asked = {"settings": desired.settings}
    peers = [Step("Peer access between the cards", verification.peers, asked)] if desired.settings.verify_peers else []
    battery = {**asked, "rollback": desired.settings.auto_rollback}
    return (*peers, Step("Every engine answers rightly", verification.verify, battery))

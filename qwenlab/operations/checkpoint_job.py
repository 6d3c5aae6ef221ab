"""What a plan needs fetched, and the job (qwenlab/remote/checkpoint/job.py) that fetches one of it. Pure."""

from __future__ import annotations

from hashlib import sha256
from secrets import token_hex
from typing import Any

from qwenlab.engine.release import CA_BUNDLE, proxies
from qwenlab.planner.plan import Checkpoint, HostPlan
from qwenlab.settings import Settings

RUN = "/run/qwen-fetch"


def checkpoints_of(plan: HostPlan) -> list[Checkpoint]:
    """Every checkpoint and drafter of the plan, once."""
    found = [one for engine in plan.engines for one in (engine.checkpoint, engine.drafter) if one is not None]
    return list(dict.fromkeys(found))


def base_of(checkpoint: Checkpoint) -> Checkpoint:
    """What is fetched for a checkpoint: the repository's own files, also where the host requantises them."""
    return checkpoint.model_copy(update={"preparation": None})


def unit_of(directory: str) -> str:
    """The unit that fetches into a directory: the same for every deploy, so that a second one finds the first."""
    return f"qwen-fetch-{sha256(directory.encode()).hexdigest()[:12]}"


def job_of(checkpoint: Checkpoint, settings: Settings, token: str | None) -> dict[str, Any]:
    """The job that fetches a checkpoint and prepares it where the plan says so; `token` is the hub's."""
    base = base_of(checkpoint)
    directory = base.directory(settings.model_directory)
    job: dict[str, Any] = {
        "repo": base.repo,
        "revision": base.revision,
        "directory": directory,
        "models": settings.model_directory,
        "source": "path" if settings.model_source == "path" else "hub",
        "place": settings.model_path,
        "endpoint": settings.hub_endpoint,
        "token": token,
        "format": None if settings.engine == "cpu" else base.format,
        "status": f"{RUN}/{unit_of(directory)}.json",
        "verify": settings.verify_models,
        "fetcher": settings.fetcher,
        "deploy": token_hex(8),
        "environment": {
            **proxies(settings),
            "HF_HOME": f"{settings.home}/.cache/huggingface",
            "SSL_CERT_FILE": CA_BUNDLE,
        },
    }
    if checkpoint.preparation is not None:
        target = checkpoint.directory(settings.model_directory)
        job["prepare"] = {"directory": target, "recipe": checkpoint.preparation}
    return job

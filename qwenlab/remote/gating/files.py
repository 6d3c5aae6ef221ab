"""Files: the plan, what the engine is started with, secrets and its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from qwenlab.remote.gating.look import Gate, Problem

END = "# end of file\n"  # the last line of what is rendered for an engine, see qwenlab.service.gate_file
SHORTEST_SECRET = 8


def check_files(gate: Gate) -> Iterator[Problem]:
    """Plan, settings, secrets and checkpoints are whole."""
    plan = gate.etc / "plan.json"
    try:
        json.loads(plan.read_text())
    except (OSError, ValueError):
        yield Problem(f"{plan} is missing or damaged: deploy again")
    for file in map(Path, gate.asked.get("files", [])):
        # an engine that starts with the first half of its settings would serve, and not as planned
        if not file.is_file() or not file.read_text(errors="replace").endswith(END):
            yield Problem(f"{file} is missing or cut off: deploy again")
    for secret in map(Path, gate.asked.get("secrets", [])):
        yield from check_secret(secret)
    for folder in gate.asked.get("checkpoints", []):
        yield from check_checkpoint(Path(folder))


def check_secret(secret: Path) -> Iterator[Problem]:
    """A secret is there, is not empty (vLLM takes an empty key for none and answers everybody), and is root's alone."""
    try:
        state, content = secret.stat(), secret.read_text(errors="replace").strip()
    except FileNotFoundError:
        yield Problem(f"{secret} is missing: deploy again")
        return
    if len(content) < SHORTEST_SECRET:
        yield Problem(f"{secret} is empty or too short: remove it and deploy again")
    if state.st_mode & 0o077 or state.st_uid != 0:
        yield Problem(
            f"{secret} can be read by others (mode {state.st_mode & 0o777:o}, owner {state.st_uid}): "
            f"chown root: {secret}; chmod 600 {secret}; and change the key"
        )


def check_checkpoint(folder: Path) -> Iterator[Problem]:
    """Every file that the manifest names is there with its size; contents were verified when they were fetched."""
    manifest = folder / "manifest.json"
    if not manifest.exists():
        if not (folder / ".complete").exists():
            yield Problem(f"the checkpoint {folder} is not complete: deploy again")
        return
    try:
        files = [(folder / entry["path"], int(entry["size"])) for entry in json.loads(manifest.read_text())["files"]]
    except (ValueError, KeyError, TypeError):
        yield Problem(f"{manifest} is damaged: deploy again")
        return
    wrong = [path for path, size in files if not path.exists() or path.stat().st_size != size]
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        yield Problem(
            f"checkpoint file {wrong[0]}{more} is missing or has another size than its manifest says: deploy again"
        )

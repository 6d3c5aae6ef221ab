"""The service on a host: files from the plan, then units that run with exactly these files."""

from __future__ import annotations

import shlex
from collections.abc import Generator, Mapping
from functools import cache
from hashlib import sha256
from secrets import token_urlsafe

from pyinfra import logger
from pyinfra.api.command import FunctionCommand, PyinfraCommand, QuoteString, StringCommand
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.api.state import State
from pyinfra.context import host

from qwenlab.engine.release import BuildStep
from qwenlab.facts.engine_units import EngineUnits
from qwenlab.facts.file_states import PathStates
from qwenlab.facts.generation import DeployAttempts, FailedAttempt
from qwenlab.facts.planned_inventory import INVENTORY
from qwenlab.operations.engine import engine_state, wanted_release
from qwenlab.operations.patch import with_series
from qwenlab.operations.paths import put, put_with_folders, write
from qwenlab.operations.planning import host_inventory, host_plan, plan_of
from qwenlab.operations.refusal import refusal
from qwenlab.programs import programs
from qwenlab.remote import LIBRARY
from qwenlab.render import (
    API_KEY,
    ENGINES,
    JOURNAL_CONF,
    PLAN,
    RemoteFile,
    drop_in,
    render,
    units_of,
)
from qwenlab.settings import Settings

LOG_LINES = 40
ERROR_LINES = 12
SEARCHED_LINES = 800
# A dying vLLM says a lot about what it leaves behind (nanobind), and systemd about each process that it ends.
NOISE = "nanobind|^ - (leaked|\\.\\.\\.)|Killing process|[[:space:]]INFO[[:space:]]"


@operation()
def configure(settings: Settings, steps: tuple[BuildStep, ...] = ()) -> Generator[PyinfraCommand, None, None]:
    """Plan, engine files and units as the plan of this host asks for; nothing is restarted.

    What failed on this host before and was rolled back is refused, unless `qwen_retry_failed` is on.

    Args:
        settings: the host's settings.
        steps: as given to `engine.release`.
    """
    inventory = host_inventory(settings)
    plan = plan_of(inventory, settings)
    if plan.status == "refused":
        yield refusal(one.text for one in plan.refusals)
        return
    files = render(plan, settings)
    steps, reasons = with_series(settings, steps)
    if reasons:
        yield refusal(reasons)
        return
    digest = attempt_digest(files | programs(settings), wanted_release(settings, engine_state(settings), steps))
    attempts = host.get_fact(DeployAttempts)
    if attempts.failed.digest == digest and not settings.retry_failed:
        yield refusal([rolled_back(attempts.failed)])
        return
    if digest != attempts.last or attempts.failed.digest == digest:
        yield StringCommand("python3", f"{LIBRARY}/generation.py", "attempt", digest)
    changed = yield from put_with_folders(files)
    if JOURNAL_CONF in changed:
        yield StringCommand("systemctl restart systemd-journald.service")
    if PLAN in changed:
        # only with a new plan: free memory and the like differ at every look
        yield from put({INVENTORY: RemoteFile(inventory.model_dump_json(indent=1) + "\n")})


def attempt_digest(files: Mapping[str, RemoteFile], release: str) -> str:
    """The name of an attempt: release and every file, so that another qwenlab or other settings are another attempt."""
    total = sha256(release.encode())
    for path, file in sorted(files.items()):
        total.update(f"\0{path}\0{file.mode}\0{file.content}".encode())
    return total.hexdigest()


def rolled_back(failed: FailedAttempt) -> str:
    """Words for a host on which the same was tried before."""
    return (
        f"this very plan and release ({failed.release}) failed here at {failed.at} ({failed.reason}) and the host went "
        "back to what it serves now: change what made it fail, or try the same again with --data qwen_retry_failed=True"
    )


@operation()
def generated_key() -> Generator[PyinfraCommand, None, None]:
    """A key on hosts that have none, the same for all of a run, shown this once; a key that lies there stays."""
    if API_KEY in host.get_fact(PathStates, paths=(API_KEY,)):
        host.noop("there is a key")
        return
    key = lab_key()
    yield write(API_KEY, RemoteFile(f"{key}\n", "600"))
    yield FunctionCommand(_show_key, [key], {})


@cache
def lab_key() -> str:
    """256 random bits, the same for every host of this run."""
    return token_urlsafe(32)


def _show_key(state: State, host: Host, key: str) -> None:
    logger.info(f"{host.print_prefix}API key, shown this once (it lies in {API_KEY}, for root alone): {key}")


@operation()
def serve(settings: Settings) -> Generator[PyinfraCommand, None, None]:
    """Every engine of the plan answers and runs with the files that lie there; other engines are gone.

    What an engine was started with is recorded at its start, so that a run that was cut off between writing and
    restarting is made good by the next one, and a plain re-run restarts nothing.

    Args:
        settings: the host's settings.
    """
    plan = host_plan(settings)
    wanted = [unit.name for engine in plan.engines for unit in units_of(engine, settings)]
    state = host.get_fact(EngineUnits, names=tuple(wanted))
    if state.needs_reload or not state.enabled:
        yield StringCommand("systemctl daemon-reload")
    for name in sorted(state.engines.keys() - set(wanted)):
        # one that had failed would stay in systemd's list of failed units
        yield StringCommand("systemctl stop", _unit(name), "; systemctl reset-failed", _unit(name), "2>/dev/null; true")
        ends = ("yaml", "env", "gate.json")
        yield StringCommand("rm -rf", *(QuoteString(f"{ENGINES}/{name}.{end}") for end in ends), drop_in(name))
    if not state.enabled:
        yield StringCommand("systemctl enable --quiet qwen.service")
    current = {name for name, unit in state.engines.items() if unit.state == "active" and not unit.stale}
    due = [name for name in wanted if name not in current]
    back = f"python3 {LIBRARY}/generation.py restore; " if settings.auto_rollback else ""
    if due:
        units = " ".join(_unit(name) for name in due)
        yield StringCommand(
            f"systemctl reset-failed {units} 2>/dev/null; systemctl restart {units}", _or_tell(units, back)
        )
    if due or not state.active:
        yield StringCommand("systemctl start qwen.service", _or_tell("qwen.service", back))


def _unit(name: str) -> str:
    return f"qwen-engine@{name}.service"


def _or_tell(units: str, back: str) -> str:
    """Shell that shows state, first errors and last log lines of units that did not come up, and then does `back`."""
    return (
        f"|| {{ systemctl status --no-pager --lines=0 {units}; for unit in {units}; do "
        f"said=$(journalctl --no-pager -o cat -n {SEARCHED_LINES} -u $unit | grep -vE {shlex.quote(NOISE)}); "
        f"echo \"$said\" | grep -E 'ERROR|Error:|refused:' | head -n {ERROR_LINES}; "
        f'echo "..."; echo "$said" | tail -n {LOG_LINES}; done; '
        f'echo "the engine did not start: the lines above say why"; {back}exit 1; }} >&2'
    )

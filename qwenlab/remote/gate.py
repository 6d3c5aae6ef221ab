#!/usr/bin/env python3
"""gate.py NAME: may engine NAME start now? Runs as root before every start; changes nothing that is in use.

Reads /etc/qwen/engines/NAME.gate.json and writes its verdict to /run/qwen/NAME.gate. The engine's own process reads the
verdict and leaves with its code: systemd judges that process alone when it decides on a restart
(RestartPreventExitStatus= does not look at ExecStartPre=). 78 means that restarting cannot mend it; 75 that it may.
Standard library only, Python 3.9 or newer.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ETC = Path("/etc/qwen")
RUN = Path("/run/qwen")
CONFIG, TEMPORARY = 78, 75  # EX_CONFIG and EX_TEMPFAIL of sysexits.h
POLL_S = 1.0
LONGEST_PAUSE_S = 300
HOUR_S = 3600.0
SMI_LIMIT_S = 60
CACHE_SUSPECT_AFTER = 2  # automatic restarts
DISK_MIB = 64
END = "# end of file\n"  # the last line of what is rendered for an engine, see qwenlab.service.gate_file
SHORTEST_SECRET = 8


@dataclass(frozen=True)
class Problem:
    """Why the engine may not start: words for its owner, and whether waiting may help."""

    text: str
    code: int = CONFIG


Check = Callable[["Gate"], Iterator[Problem]]


def ask_smi(*arguments: str) -> tuple[int, list[list[str]]]:
    """nvidia-smi's exit code and CSV rows; 127 when the program is missing, 124 when it does not end."""
    command = ["nvidia-smi", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SMI_LIMIT_S, check=False)
    except FileNotFoundError:
        return 127, []
    except subprocess.TimeoutExpired:
        return 124, []
    return done.returncode, [[cell.strip() for cell in row.split(",")] for row in done.stdout.splitlines() if row]


@dataclass
class Gate:
    """One look at the host for one engine.

    Attributes:
        asked: content of the gate file, see `qwenlab.service.gate_file`.
        etc, proc: where configuration and procfs lie.
        smi: asks nvidia-smi.
    """

    asked: dict[str, Any]
    etc: Path = ETC
    proc: Path = Path("/proc")
    module: Path = Path("/sys/module/nvidia/version")
    smi: Callable[..., tuple[int, list[list[str]]]] = ask_smi

    @property
    def cards(self) -> list[str]:
        """UUIDs of the engine's cards in rank order."""
        return list(self.asked.get("cards", []))


def check_files(gate: Gate) -> Iterator[Problem]:
    """Plan, secrets, release and checkpoints are whole."""
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
    release = Path(gate.asked["release"])
    if not (release / "release.json").exists() or not os.access(release / "venv/bin/python", os.X_OK):
        yield Problem(f"the engine release {release} is not complete: deploy again")
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


def check_room(gate: Gate) -> Iterator[Problem]:
    """Shared memory and disk."""
    need = gate.asked.get("shm_mib", 0)
    shm = os.statvfs("/dev/shm")
    size, free = shm.f_blocks * shm.f_frsize >> 20, shm.f_bavail * shm.f_frsize >> 20
    if size < need:
        yield Problem(
            f"/dev/shm holds {size} MiB and this engine's ranks exchange through {need}: "
            f"mount -o remount,size={2 * need}m /dev/shm"
        )
    elif free < need:
        yield Problem(f"/dev/shm has {free} MiB free of {size} and {need} are needed: see ls -l /dev/shm", TEMPORARY)
    home = Path(gate.asked["home"])
    with suppress(OSError):
        disk = os.statvfs(home)
        if disk.f_bavail * disk.f_frsize >> 20 < DISK_MIB:
            yield Problem(f"the disk below {home} is full: compile caches cannot be written; free room", TEMPORARY)


def check_port(gate: Gate) -> Iterator[Problem]:
    """The port can be had."""
    port = gate.asked.get("port")
    if port is None:
        return
    host = str(gate.asked["host"])
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            holder = port_holder(gate.proc, port)
            who = f"held by {holder}" if holder else str(error.strerror)
            yield Problem(f"port {port} is taken ({who}): stop that program, or set qwen_port", TEMPORARY)


def check_driver(gate: Gate) -> Iterator[Problem]:
    """The kernel's module and the library are of one version."""
    if not gate.cards:
        return
    code, rows = gate.smi("--query-gpu=driver_version", "--format=csv,noheader")
    if code == 127:
        yield Problem("nvidia-smi is missing: the NVIDIA driver is not installed; deploy again")
    elif code == 124:
        yield Problem(f"nvidia-smi does not answer within {SMI_LIMIT_S} s: the driver hangs; reboot", TEMPORARY)
    elif code == 18:
        yield Problem("the kernel runs another NVIDIA module than the library belongs to: reboot")
    elif code in (9, 12):
        yield Problem("the NVIDIA driver is not loaded: modprobe nvidia, or reboot")
    elif rows and gate.module.exists():
        loaded, library = gate.module.read_text().strip(), rows[0][0]
        if loaded != library and library[:1].isdigit():
            yield Problem(f"the kernel runs NVIDIA module {loaded} and the library is {library}: reboot")


def check_cards(gate: Gate) -> Iterator[Problem]:
    """Every planned card is there, answers, and has room for what the plan puts on it."""
    if not gate.cards:
        return
    code, rows = gate.smi("--query-gpu=uuid,name,memory.total,memory.used", "--format=csv,noheader,nounits")
    found = {row[0]: row for row in rows if len(row) == 4}
    if code == 15 and not found:  # then nvidia-smi answers for no card at all
        yield Problem("a card fell off the bus: see journalctl -k | grep -i xid; reboot")
        return
    for uuid in gate.cards:
        row = found.get(uuid)
        if row is None:
            words = "fell off the bus: see journalctl -k | grep -i xid; reboot" if code == 15 else "is not there"
            yield Problem(f"card {uuid} {words}; if it was taken out, deploy again for a plan without it")
            continue
        _, name, total, used = row
        if not (total.isdigit() and used.isdigit()):
            yield Problem(f"card {uuid} ({name}) does not answer ({used}): see journalctl -k | grep -i xid; reboot")
            continue
        need = gate.asked.get("need_mib", {}).get(uuid, 0)
        if int(total) - int(used) < need:
            yield Problem(
                f"card {uuid} ({name}) has {int(total) - int(used)} MiB free and the plan needs {need}: "
                f"{holders(gate, uuid) or 'no program is shown as holding it'}",
                TEMPORARY,
            )


def check_links(gate: Gate) -> Iterator[Problem]:
    """NVLink between the planned cards is as wide as it was when the plan was made."""
    planned = planned_lanes(gate)
    if not planned:
        return
    _, rows = gate.smi("--query-gpu=index,uuid", "--format=csv,noheader")
    place = {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()}
    _, matrix = gate.smi("topo", "-m")
    cells = {row[0].split("\t")[0].strip(): [cell.strip() for cell in row[0].split("\t")[1:]] for row in matrix if row}
    for (a, b), lanes in planned.items():
        if a not in place or b not in place:
            continue  # told by check_cards
        line = cells.get(f"GPU{place[a]}", [])
        cell = line[place[b]] if place[b] < len(line) else ""
        now = int(cell[2:]) if cell.startswith("NV") and cell[2:].isdigit() else 0
        if now < lanes:
            yield Problem(
                f"NVLink between {a} and {b} has {now} of {lanes} lanes: reseat the bridge and reboot, "
                "or deploy again for a plan without it"
            )


def planned_lanes(gate: Gate) -> dict[tuple[str, str], int]:
    """NVLink lanes between this engine's cards, by UUID, in the inventory that the plan was made from."""
    try:
        inventory = json.loads((gate.etc / "inventory.json").read_text())
        uuids = {gpu["index"]: gpu["uuid"] for gpu in inventory["gpus"]}
        pairs = [(uuids[pair["a"]], uuids[pair["b"]], int(pair["nvlink_lanes"])) for pair in inventory["pairs"]]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {(a, b): lanes for a, b, lanes in pairs if lanes and a in gate.cards and b in gate.cards}


CHECKS: tuple[Check, ...] = (
    # in the order in which a person mends things
    check_files,
    check_driver,
    check_cards,
    check_links,
    check_room,
    check_port,
)


def holders(gate: Gate, uuid: str) -> str:
    """Who holds memory of a card, as `held by process 12 (python3, user alice, 4096 MiB)`."""
    _, rows = gate.smi("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader,nounits")
    found = [f"{describe(gate.proc, row[1])[:-1]}, {row[2]} MiB)" for row in rows if len(row) == 3 and row[0] == uuid]
    return "held by " + "; ".join(found) if found else ""


def describe(proc: Path, process: str) -> str:
    """`process 12 (python3, user 1000)`."""
    try:
        name = (proc / process / "comm").read_text().strip()
        return f"process {process} ({name}, user {(proc / process).stat().st_uid})"
    except OSError:
        return f"process {process} (gone, or of another container)"


def port_holder(proc: Path, port: int) -> str:
    """The process that listens on a TCP port; empty when it cannot be found."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                cells = line.split()
                if cells[3] == "0A" and int(cells[1].rsplit(":", 1)[1], 16) == port:
                    inodes.add(f"socket:[{cells[9]}]")
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            for handle in (entry / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(handle) in inodes:
                        return describe(proc, entry.name)
    return ""


def problems(gate: Gate) -> list[Problem]:
    """Everything against a start now."""
    return [problem for check in CHECKS for problem in check(gate)]


def settle(
    look: Callable[[], list[Problem]], patience_s: float, tell: Callable[[str], None], pause: Callable[[float], None]
) -> list[Problem]:
    """Look until nothing is wrong, something is that waiting cannot mend, or patience ends."""
    deadline = time.monotonic() + patience_s
    while True:
        found = look()
        if not found or any(problem.code == CONFIG for problem in found) or time.monotonic() >= deadline:
            return found
        tell(f"waiting: {found[0].text}")
        pause(POLL_S)


def restart_pause(restarts: int) -> int:
    """Seconds to wait before an automatic restart beyond systemd's own: 0, 0, 20, 40, 80 ... at most five minutes."""
    return 0 if restarts < 2 else min(LONGEST_PAUSE_S, 10 * 2 ** min(restarts - 1, 10))


def set_cache_aside(home: Path) -> Path | None:
    """Move vLLM's compile cache away: one that a power cut damaged would fail every start. None when there is none."""
    cache = home / ".cache/vllm/torch_compile_cache"
    if not cache.is_dir():
        return None
    aside = cache.with_name(f"{cache.name}.suspect")
    subprocess.run(["rm", "-rf", str(aside)], check=False)
    cache.rename(aside)
    return aside


def recent_restarts(total: int, record: Path, now: float) -> int:
    """How often systemd restarted the engine by itself within the last hour, kept in `record`.

    Args:
        total: systemd's count (NRestarts), which starts anew when a person starts the unit.
        now: seconds of the boot's clock, which no change of the date moves.
    """
    try:
        known: dict[str, Any] = json.loads(record.read_text())
    except (OSError, ValueError):
        known = {"total": 0, "at": []}
    at = [moment for moment in known["at"] if now - moment < HOUR_S] if total else []
    if total > known["total"] or (total and not at):
        at.append(now)
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps({"total": total, "at": at}))
    return len(at)


def restarts_of(unit: str) -> int:
    """systemd's count of its own restarts of the unit."""
    command = ["systemctl", "show", "-p", "NRestarts", "--value", unit]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return int(text) if text.isdigit() else 0


def notify(text: str) -> None:
    """Status line of the unit (sd_notify(3)) and a line in its journal."""
    print(f"gate: {text}", flush=True)
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.send(f"STATUS={text}".encode())


def once(tell: Callable[[str], None]) -> Callable[[str], None]:
    """`tell`, but the same words only once in a row."""
    last = [""]

    def changed(text: str) -> None:
        if text != last[0]:
            last[0] = text
            tell(text)

    return changed


def judge(name: str) -> list[Problem]:
    """The problems of engine `name` after waiting for what may pass."""
    path = ETC / "engines" / f"{name}.gate.json"
    try:
        asked: dict[str, Any] = json.loads(path.read_text())
        gate = Gate(asked)
        patience = float(asked["wait_s"])
        total = restarts_of(f"qwen-engine@{name}.service")
        restarts = recent_restarts(total, RUN / f"{name}.restarts", time.monotonic())
        if restarts >= CACHE_SUSPECT_AFTER:
            aside = set_cache_aside(Path(asked["home"]))
            if aside:
                notify(f"restart {restarts}: compile cache set aside as {aside}")
        pause = restart_pause(restarts)
        if pause:
            notify(f"restart {restarts}: pausing {pause} s before it")
            time.sleep(pause)
        return settle(lambda: problems(gate), patience, once(notify), time.sleep)
    except (OSError, ValueError, KeyError, TypeError):
        return [Problem(f"{path} is missing or damaged: deploy again")]


def main(argv: list[str]) -> int:
    """Judge and write the verdict; always 0, see the head of this file."""
    (name,) = argv
    found = judge(name)
    RUN.mkdir(exist_ok=True)
    RUN.chmod(0o755)
    # what waiting cannot mend decides; the words name everything
    code = max((problem.code for problem in found), default=0)
    verdict = RUN / f"{name}.gate"
    fresh = RUN / f"{name}.gate.new"
    fresh.write_text(json.dumps({"code": code, "reasons": [problem.text for problem in found]}))
    fresh.chmod(0o644)
    fresh.rename(verdict)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Room: shared memory, disk and the port."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from qwenlab.remote.gating.look import TEMPORARY, Gate, Problem, describe

DISK_MIB = 64
LISTEN = "0A"  # TCP_LISTEN of /proc/net/tcp


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


def _listening(proc: Path, port: int) -> Iterator[str]:
    """The sockets that listen on a TCP port, as a link in `fd` names them (proc(5), /proc/net/tcp)."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (proc / "net" / name).read_text().splitlines()[1:]:
                cells = line.split()
                if cells[3] == LISTEN and int(cells[1].rsplit(":", 1)[1], 16) == port:
                    yield f"socket:[{cells[9]}]"


def port_holder(proc: Path, port: int) -> str:
    """The process that listens on a TCP port; empty when it cannot be found."""
    inodes = set(_listening(proc, port))
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            for handle in (entry / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(handle) in inodes:
                        return describe(proc, entry.name)
    return ""

"""What a host is before anything is installed: system, rights, disk, memory, clock, Python; in one round trip."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase

from qwenlab.facts.answers import reading

SCRIPT = r"""
echo "uid=$(id -u)"
echo "user=$(id -un 2>/dev/null)"
if [ "$(id -u)" = 0 ]; then echo sudo=root
elif ! command -v sudo >/dev/null 2>&1; then echo sudo=absent
elif sudo -n true >/dev/null 2>&1; then echo sudo=yes
else echo "sudo=$(LC_ALL=C sudo -n true 2>&1 | tail -n1)"; fi
. /etc/os-release 2>/dev/null && echo "os=$ID" && echo "release=${VERSION_ID:-}" && echo "os_name=${PRETTY_NAME:-}"
echo "arch=$(uname -m)"
echo "cpu_flags=$(sed -n 's/^flags[[:space:]]*: //p' /proc/cpuinfo 2>/dev/null | head -n1)"
echo "machine=$(cat /etc/machine-id 2>/dev/null) $(cat /proc/sys/kernel/random/boot_id 2>/dev/null) $(uname -n)"
echo "init=$(cat /proc/1/comm 2>/dev/null)"
echo "systemd=$(systemctl --version 2>/dev/null | sed -n '1s/^systemd \([0-9]*\).*/\1/p')"
echo "time=$(date +%s)"
echo "ram_kib=$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
for limit in /sys/fs/cgroup/memory.max; do [ -r "$limit" ] && echo "ram_limit=$(cat "$limit")"; done
echo "cpus=$(nproc 2>/dev/null)"
echo "python=$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)"
echo "apt=$(command -v apt-get 2>/dev/null)"
for path in @PATHS@; do
    probe=$path
    while [ ! -d "$probe" ]; do probe=$(dirname "$probe"); done
    used=$(du -sk "$path" 2>/dev/null | tail -n1 | cut -f1)
    echo "disk=$path $(df -Pk "$probe" | awk 'NR==2 {print $4, $1}') ${used:-0}"
done
true
"""


class UserId(FactBase[int]):
    """The numeric id that commands run under. `$USER` is empty in cron, containers and on `@local`."""

    def command(self) -> str:
        """`id -u`."""
        return "id -u"

    def process(self, output: list[str]) -> int:
        """The number that `id` printed.

        Raises:
            FactProcessError: it printed none.
        """
        try:
            return int(output[0])
        except (IndexError, ValueError):
            raise FactProcessError(f"id -u printed no number: {output!r}") from None


@dataclass(frozen=True)
class Room:
    """Disk below one path.

    Attributes:
        free_gib: what an unprivileged user may still write.
        used_gib: what lies below the path itself.
        device: file system, as df names it; two paths of one device share its room.
    """

    free_gib: float
    used_gib: float
    device: str


@dataclass(frozen=True)
class HostBase:
    """The answers; a field that the host could not tell is empty or None.

    `machine` tells machines apart: copies of one image share a machine id, containers of one host its boot id.
    """

    user: str = ""
    uid: int | None = None
    sudo: str = ""
    os: str = ""
    os_name: str = ""
    release: str = ""
    architecture: str = ""
    cpu_flags: frozenset[str] = frozenset()
    machine: str = ""
    init: str = ""
    systemd: int | None = None
    time: int | None = None
    ram_gib: float | None = None
    cpus: int | None = None
    python: str = ""
    apt: bool = False
    rooms: dict[str, Room] = field(default_factory=dict)


def parse(lines: list[str]) -> HostBase:
    """`HostBase` from the script's output. Unknown lines (a login banner) are passed over.

    Raises:
        ValueError: a number is not one.
    """
    values: dict[str, str] = {}
    rooms: dict[str, Room] = {}
    for line in lines:
        key, separator, value = line.strip().partition("=")
        if not separator:
            continue
        if key == "disk":
            path, free, device, used = value.rsplit(" ", 3)
            rooms[path] = Room(int(free) / 2**20, int(used) / 2**20, device)
        else:
            values[key] = value.strip()
    ram = [int(values["ram_kib"]) * 1024] if values.get("ram_kib") else []
    ram += [int(values["ram_limit"])] if values.get("ram_limit", "").isdigit() else []
    return HostBase(
        user=values.get("user", ""),
        uid=_number(values, "uid"),
        sudo=values.get("sudo", ""),
        os=values.get("os", ""),
        os_name=values.get("os_name", ""),
        release=values.get("release", ""),
        architecture=values.get("arch", ""),
        cpu_flags=frozenset(values.get("cpu_flags", "").split()),
        machine=values.get("machine", ""),
        init=values.get("init", ""),
        systemd=_number(values, "systemd"),
        time=_number(values, "time"),
        ram_gib=min(ram) / 2**30 if ram else None,
        cpus=_number(values, "cpus"),
        python=values.get("python", ""),
        apt=bool(values.get("apt")),
        rooms=rooms,
    )


def _number(values: dict[str, str], key: str) -> int | None:
    return int(values[key]) if values.get(key) else None


class HostBasics(FactBase[HostBase]):
    """`HostBase` of a host; asked without sudo, since whether sudo works is one of the questions."""

    def command(self, paths: tuple[str, ...]) -> str:
        """`paths`: directories, existing or not, whose disk matters."""
        return SCRIPT.replace("@PATHS@", " ".join(shlex.quote(path) for path in paths)).strip()

    def process(self, output: list[str]) -> HostBase:
        """Parse; an odd answer fails this host alone."""
        with reading("the host's answers"):
            return parse(list(output))

    @staticmethod
    def default() -> HostBase:
        """Nothing known."""
        return HostBase()

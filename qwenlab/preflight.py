"""Whether a host can be served at all: pure rules over `HostBase`, judged before anything is changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from qwenlab.facts.host_base import HostBase
from qwenlab.settings import Settings
from qwenlab.systems import processor_problem, system_problem

OLDEST_PYTHON = (3, 9)  # for the programs that run on the host; the engine has its own Python
OLDEST_SYSTEMD = 250  # credentials (LoadCredential=) as the units use them
# x86 instructions that vLLM's processor build uses without asking (vllm-project/vllm 35466). The CUDA engine runs in a
# guest without AVX (vllm-project/vllm 52885 is of NIXL, which no release here holds).
CPU_INSTRUCTION = "avx2"
MODEL_GIB = {"cuda": 40.0, "cpu": 2.0}
MARGIN_GIB = 1.0


@dataclass(frozen=True)
class Login:
    """How pyinfra works on the host: whether it becomes root by sudo, and whether it has a password for that."""

    sudo: bool
    password: bool


def problems(base: HostBase, settings: Settings, login: Login, now: float) -> list[str]:
    """Every reason against this host, in words for its owner; empty when it can be served.

    Args:
        now: the control machine's clock, seconds since 1970.
    """
    return [
        text
        for text in (
            *_rights(base, login),
            *_system(base, settings),
            *room_problems(base, settings),
            *_clock(base, settings, now),
        )
        if text
    ]


def _rights(base: HostBase, login: Login) -> list[str]:
    if base.uid == 0:
        return []
    if not login.sudo:
        return [
            f"user {base.user} is not root: log in as root, or let pyinfra use sudo (_sudo = True in group_data/all.py)"
        ]
    if base.sudo == "absent":
        return [f"there is no sudo for user {base.user}: log in as root, or install sudo"]
    if base.sudo != "yes" and not login.password:
        return [
            f"user {base.user} may not become root ({base.sudo or 'sudo refuses'}): give them the right "
            f"(echo '{base.user} ALL=(ALL) NOPASSWD:ALL' > /etc/sudoers.d/{base.user}), or pass a password "
            "(_sudo_password in the inventory, or pyinfra --same-sudo-password)"
        ]
    return []


def _system(base: HostBase, settings: Settings) -> list[str]:
    found = []
    if (problem := system_problem(base.os, base.release, base.os_name)) is not None:
        found.append(problem)
    if (problem := processor_problem(base.architecture, settings)) is not None:
        found.append(problem)
    if settings.engine == "cpu" and base.cpu_flags and CPU_INSTRUCTION not in base.cpu_flags:
        found.append(
            f"the processor lacks {CPU_INSTRUCTION}, which qwen_engine = 'cpu' needs: in a virtual machine give it the "
            "type of the processor below (Proxmox: CPU type host)"
        )
    if base.init != "systemd" or base.systemd is None:
        found.append(f"process 1 is {base.init or 'unknown'}, not systemd: qwenlab serves through systemd units")
    elif base.systemd < OLDEST_SYSTEMD:
        found.append(f"systemd {base.systemd} is too old: {OLDEST_SYSTEMD} or newer is needed")
    if not base.python:
        found.append("there is no python3: install it (apt-get install python3)")
    elif tuple(int(part) for part in base.python.split(".")[:2]) < OLDEST_PYTHON:
        found.append(f"python3 is {base.python}: {'.'.join(map(str, OLDEST_PYTHON))} or newer is needed")
    need = settings.release.ram_gib if settings.min_ram_gib is None else settings.min_ram_gib
    if base.ram_gib is not None and base.ram_gib < need:
        found.append(f"{base.ram_gib:.1f} GiB of memory; {need:g} GiB are needed (qwen_min_ram_gib)")
    return found


def needs(settings: Settings) -> dict[str, tuple[float, str]]:
    """Directory to the GiB that it will hold and the setting that says so."""
    release = settings.release.release_gib if settings.min_release_gib is None else settings.min_release_gib
    models = MODEL_GIB[settings.engine] if settings.min_model_gib is None else settings.min_model_gib
    return {
        settings.release_directory: (release, "qwen_min_release_gib"),
        settings.model_directory: (models, "qwen_min_model_gib"),
    }


def room_problems(base: HostBase, settings: Settings, more: Mapping[str, float] | None = None) -> list[str]:
    """Where disk is too small. Room is counted a file system, less what a former run already put there.

    Args:
        more: GiB that are needed beside it, by directory (a bundle that is carried).
    """
    missing: dict[str, float] = defaultdict(float)
    for path, gib in (more or {}).items():
        if path in base.rooms:
            missing[base.rooms[path].device] += gib
    paths: dict[str, list[str]] = defaultdict(list)
    free: dict[str, float] = {}
    for path, (gib, _) in needs(settings).items():
        if (room := base.rooms.get(path)) is not None:
            missing[room.device] += max(0.0, gib - room.used_gib)
            paths[room.device].append(f"{path} ({gib:g} GiB)")
            free[room.device] = room.free_gib
    return [
        f"too little disk: {free[device]:.1f} GiB free where {' and '.join(paths[device])} will lie, "
        f"{gib:.1f} GiB more are needed: free room, or point qwen_release_directory or qwen_model_directory elsewhere"
        for device, gib in missing.items()
        if free[device] < (gib + MARGIN_GIB if gib > 0 else 0)
    ]


def _clock(base: HostBase, settings: Settings, now: float) -> list[str]:
    if base.time is None or abs(base.time - now) <= settings.max_clock_skew_s:
        return []
    return [
        f"the clock is {abs(base.time - now):.0f} s {'ahead' if base.time > now else 'behind'}: TLS and apt "
        "would fail; set it (timedatectl set-ntp true), or raise qwen_max_clock_skew_s"
    ]

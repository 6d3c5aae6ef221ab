"""The lab by hand: `python -m tests.lab up|list|ssh|destroy|sweep`."""

from __future__ import annotations

import argparse
import os
import sys

from tests.lab import boot
from tests.lab.host import Host, HostSpec
from tests.lab.image import RELEASES
from tests.lab.lab import claim, fill, host_of, removed_after
from tests.lab.registry import records, registry_lock
from tests.lab.removal import destroy, empty_trash, remove_leftovers
from tests.lab.shell import LabError


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="Real Debian hosts on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="boot hosts that stay until `destroy`")
    up.add_argument("count", type=int, nargs="?", default=1)
    up.add_argument("--release", choices=RELEASES, default=RELEASES[0])
    up.add_argument("--package", action="append", default=[], help="Debian package that the hosts shall have")
    up.add_argument("--disk-mib", type=int)
    up.add_argument("--memory-mib", type=int)
    commands.add_parser("list", help="every lab of this machine, its hosts and who owns it")
    ssh = commands.add_parser("ssh", help="log in as root, or run a command")
    ssh.add_argument("host", help="name of a host, or LAB/name when several labs have it")
    ssh.add_argument("remote", nargs=argparse.REMAINDER)
    gone = commands.add_parser("destroy", help="remove kept labs and leftovers (labs of living runs stay)")
    gone.add_argument("lab", type=int, nargs="?")
    commands.add_parser("sweep", help="remove leftovers of dead runs; kept labs stay")
    options = parser.parse_args(argv)
    try:
        return _COMMANDS[options.command](options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _up(options: argparse.Namespace) -> int:
    spec = HostSpec(
        release=options.release,
        packages=tuple(options.package),
        disk_mib=options.disk_mib,
        memory_mib=options.memory_mib,
    )
    record = claim(keep=False)
    with removed_after(record) as lifetime:
        boot.keep_after_exit()
        lab = fill(record, [spec] * options.count)
        lifetime.keep("up")
    for host in lab:
        print(" ".join(host.ssh_command()))
    return 0


def _list(_: argparse.Namespace) -> int:
    for record in records():
        owner = "kept" if record.owner is None else f"process {record.owner.pid}"
        if record.owner is not None and not record.owner.alive():
            owner += " (dead; `sweep` removes it)"
        print(f"lab {record.number}: {owner}")
        for index in range(len(record.hosts)):
            host = host_of(record, index)
            print(f"  {host.name}  {host.address}  {host.spec.release}  {'running' if host.running() else 'off'}")
    return 0


def _ssh(options: argparse.Namespace) -> int:
    number, _, name = options.host.rpartition("/")
    found = [host for host in _hosts() if host.name == name and number in ("", str(host.lab.number))]
    if len(found) != 1:
        raise LabError(f"{len(found)} hosts are called {options.host!r}; `list` shows them")
    os.execvp("ssh", [*found[0].ssh_command(), *options.remote])


def _hosts() -> list[Host]:
    return [host_of(record, index) for record in records() for index in range(len(record.hosts))]


def _destroy(options: argparse.Namespace) -> int:
    for number in destroy(options.lab):
        print(f"lab {number} is removed")
    return 0


def _sweep(_: argparse.Namespace) -> int:
    with registry_lock():
        for number in remove_leftovers():
            print(f"lab {number}, left by a dead run, is removed")
    empty_trash()
    return 0


_COMMANDS = {"up": _up, "list": _list, "ssh": _ssh, "destroy": _destroy, "sweep": _sweep}

if __name__ == "__main__":
    sys.exit(main())

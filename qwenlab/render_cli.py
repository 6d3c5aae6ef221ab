"""`python -m qwenlab render`: every file that a deploy would put on a host, below a folder, with its final path.

For review, for golden copies, for `systemd-analyze verify` and `security --offline`. Touches no host and needs neither
pyinfra nor GPUs. Secrets are not among the files; their places are printed. Exit codes: 0 written, 2 refused, 64 wrong
call, 66 inventory cannot be read, 73 the folder cannot be written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from qwenlab import given
from qwenlab.gateway.files import PEM, USER, gateway_files
from qwenlab.host_inventory import HostInventory
from qwenlab.monitoring.files import card_files, node_files, watcher_files
from qwenlab.output import OutputError, named
from qwenlab.planner import plan
from qwenlab.programs import programs
from qwenlab.render import API_KEY, APT_CONF, INVENTORY, RemoteFile, apt_file, render
from qwenlab.settings import Settings

REFUSED = 2


def main(argv: list[str]) -> int:
    """Run the command."""
    options = _parser().parse_args(argv)
    try:
        inventory, settings = given.read(options)
        files = host_files(inventory, settings)
    except given.GivenError as error:
        print(f"qwenlab render: {error}", file=sys.stderr)
        return error.code
    except RefusedError as error:
        print(f"qwenlab render: refused: {error}", file=sys.stderr)
        return REFUSED
    try:
        write(files, options.out)
    except OSError as error:
        raise OutputError(options.out, error) from None
    for path in sorted(files):
        print(f"{files[path].mode} {files[path].user}:{files[path].group} {path}")
    if settings.has_key:
        print(f"600 root:root {API_KEY} (secret, not written here)")
    if settings.gateway_tls:
        print(f"600 {USER}:{USER} {PEM} (secret, not written here)")
    return 0


class RefusedError(ValueError):
    """The host cannot be planned for; the text names every reason."""


def host_files(inventory: HostInventory, settings: Settings) -> dict[str, RemoteFile]:
    """Path to file of all that a deploy puts on the host.

    Raises:
        RefusedError: no plan can be made for it.
    """
    made = plan(inventory, settings)
    if made.status == "refused":
        raise RefusedError("; ".join(reason.text for reason in made.refusals))
    return {
        APT_CONF: apt_file(settings),
        INVENTORY: RemoteFile(inventory.model_dump_json(indent=1) + "\n"),
        **programs(settings),
        **render(made, settings),
        **gateway_files(made, settings),
        **node_files(settings),
        **card_files(settings),
        **(watcher_files(settings) if settings.prometheus else {}),
    }


def write(files: dict[str, RemoteFile], folder: Path) -> None:
    """Write the files below `folder`. Raises OSError."""
    for path, file in files.items():
        place = folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(file.content, encoding="utf-8")
        place.chmod(int(file.mode, 8))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m qwenlab render",
        description="Write every file that a deploy would put on a host with these cards; nothing else is touched.",
        epilog=f"exit code: 0 written, 2 refused, {given.EXIT_CODES}",
    )
    given.add_options(parser, "qwen_port=8080")
    parser.add_argument("--out", type=named, required=True, metavar="DIR", help="folder that stands for the host's /")
    return parser

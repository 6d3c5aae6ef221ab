"""What `plan` and `render` are asked about: a host (`--from`) and settings (`--set`), read and refused alike."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from qwenlab.host_inventory import HostInventory
from qwenlab.inventory_source import KINDS, UnreadableError, read_inventory
from qwenlab.settings import Settings, SettingsError, load
from qwenlab.settings.pairs import from_pairs

WRONG_CALL, NO_INPUT = 64, 66  # as in sysexits.h
EXIT_CODES = f"{WRONG_CALL} wrong call, {NO_INPUT} inventory cannot be read, 73 cannot write"


class GivenError(ValueError):
    """What was given cannot be used; the text says why, `code` is the exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def add_options(parser: argparse.ArgumentParser, example: str) -> None:
    """`--from` and `--set`; `example` is a setting that such a call may want."""
    parser.add_argument("--from", dest="source", required=True, metavar="FILE", help=KINDS)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"any setting, its value in YAML, e.g. {example}; may be repeated",
    )


def read(options: argparse.Namespace, more: Mapping[str, Any] | None = None) -> tuple[HostInventory, Settings]:
    """The host and the settings of a parsed call; `more` are settings from options of their own, which win.

    Raises:
        GivenError: the host cannot be read, or the settings are wrong.
    """
    try:
        inventory = read_inventory(options.source)
    except UnreadableError as error:
        raise GivenError(NO_INPUT, str(error)) from None
    try:
        return inventory, load({**from_pairs(options.set), **(more or {})})
    except SettingsError as error:
        raise GivenError(WRONG_CALL, str(error)) from None

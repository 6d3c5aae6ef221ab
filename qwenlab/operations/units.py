"""Units of systemd that stand beside the engines: what is said when one does not come up, and how one goes."""

from __future__ import annotations

from pyinfra.api.command import QuoteString, StringCommand

LOG_LINES = 20


def or_tell(unit: str, name: str, back: str = "") -> str:
    """Shell behind a start that shows state and last log lines of a unit that did not come up, and then does `back`."""
    return (
        f"|| {{ systemctl status --no-pager --lines=0 {unit}; journalctl --no-pager -o cat -n {LOG_LINES} -u {unit}; "
        f'echo "{name} did not start: the lines above say why"; {back}exit 1; }} >&2'
    )


def remove(unit: str, *files: str) -> StringCommand:
    """The command that ends a unit and removes its files."""
    return StringCommand(
        f"systemctl disable --quiet --now {unit} && rm -f", *map(QuoteString, files), "&& systemctl daemon-reload"
    )

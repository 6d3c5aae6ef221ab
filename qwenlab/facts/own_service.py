"""How a service that qwenlab runs as an instance of its own stands: its unit, and the files that it has loaded."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api.exceptions import FactProcessError

# The unit notes in its runtime directory what it was started with and what it has loaded since, as digests.
_SCRIPT = r"""
word() { "$@" 2>/dev/null | head -n1 | grep . || echo unknown; }
mark() { cat "/run/qwen-@KEY@/$1" 2>/dev/null | cut -d' ' -f1 | grep . || echo none; }
name=qwen-@KEY@.service
unit=/etc/systemd/system/$name
[ -e "$unit" ] && there=yes || there=no
echo "@KEY@=$there $(word systemctl is-active $name) $(word systemctl is-enabled $name)" \
    "$(word systemctl show -p NeedDaemonReload --value $name)"
echo "started=$(mark started) $(cat "$unit" 2>/dev/null | sha256sum | cut -d' ' -f1)"
echo "loaded=$(mark loaded)" \
    "$(cat @FILES@ 2>/dev/null | sha256sum | cut -d' ' -f1)"
true
"""


@dataclass(frozen=True)
class OwnService:
    """Attributes:
    there: its unit file exists.
    restart: it does not run, or runs with another unit file.
    reload: it runs with other files than lie there.
    """

    there: bool
    active: bool
    enabled: bool
    restart: bool
    reload: bool


def script(key: str, *files: str) -> str:
    """The command whose output `read` takes, for the unit `qwen-<key>` and the files that it loads."""
    return _SCRIPT.replace("@KEY@", key).replace("@FILES@", " ".join(files)).strip()


def read(output: list[str], key: str, what: str) -> OwnService:
    """Raises `FactProcessError` for an odd answer, which fails this host alone."""
    known = dict(line.strip().split("=", 1) for line in output if "=" in line)
    try:
        there, active, enabled, reload = known[key].split()
        started, unit = known["started"].split()
        loaded, files = known["loaded"].split()
    except (KeyError, ValueError) as error:
        raise FactProcessError(f"the state of {what} could not be read: {output!r}") from error
    restart = active != "active" or started != unit or reload == "yes"
    return OwnService(there == "yes", active == "active", enabled == "enabled", restart, loaded != files)

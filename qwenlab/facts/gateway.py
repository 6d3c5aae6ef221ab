"""How the gateway stands on a host, and who holds its port."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api.exceptions import FactProcessError
from pyinfra.api.facts import FactBase

STATE = r"""
word() { "$@" 2>/dev/null | head -n1 | grep . || echo unknown; }
mark() { cat "/run/qwen-gateway/$1" 2>/dev/null | cut -d' ' -f1 | grep . || echo none; }
name=qwen-gateway.service
unit=/etc/systemd/system/$name
[ -e "$unit" ] && there=yes || there=no
echo "gateway=$there $(word systemctl is-active $name) $(word systemctl is-enabled $name)" \
    "$(word systemctl show -p NeedDaemonReload --value $name)"
echo "started=$(mark started) $(cat "$unit" 2>/dev/null | sha256sum | cut -d' ' -f1)"
echo "loaded=$(mark loaded)" \
    "$(cat /etc/qwen/gateway/haproxy.cfg /etc/qwen/gateway/tls.pem 2>/dev/null | sha256sum | cut -d' ' -f1)"
true
"""
HOLDERS = r"""
ss -Hltnp "sport = :@PORT@" 2>/dev/null | sed -n 's/.*users:(("\([^"]*\)",pid=\([0-9]*\),.*/\1 \2/p' | sort -u |
while read -r name process; do
    unit=$(sed -n 's|.*/\([^/]*\.service\).*|\1|p' "/proc/$process/cgroup" 2>/dev/null | head -n1)
    echo "holder=$process ${unit:-none} $name"
done
true
"""


@dataclass(frozen=True)
class GatewayState:
    """Attributes:
    there: its unit file exists.
    restart: it does not run, or runs with another unit file.
    reload: it runs with another configuration or certificate than lie there.
    """

    there: bool = False
    active: bool = False
    enabled: bool = False
    restart: bool = True
    reload: bool = True


class Gateway(FactBase[GatewayState]):
    """`GatewayState` of a host."""

    def command(self) -> str:
        """One script."""
        return STATE.strip()

    def process(self, output: list[str]) -> GatewayState:
        """Parse; an odd answer fails this host alone."""
        known = dict(line.strip().split("=", 1) for line in output if "=" in line)
        try:
            there, active, enabled, reload = known["gateway"].split()
            started, unit = known["started"].split()
            loaded, files = known["loaded"].split()
        except (KeyError, ValueError) as error:
            raise FactProcessError(f"the state of the gateway could not be read: {output!r}") from error
        if there == "no":
            return GatewayState(active=active == "active")
        return GatewayState(
            there=True,
            active=active == "active",
            enabled=enabled == "enabled",
            restart=active != "active" or started != unit or reload == "yes",
            reload=loaded != files,
        )

    @staticmethod
    def default() -> GatewayState:
        """Nothing there."""
        return GatewayState()


@dataclass(frozen=True)
class Holder:
    """A process that listens on a port, and the unit that it belongs to (`none` outside of one)."""

    process: int
    unit: str
    name: str


class PortHolders(FactBase[list[Holder]]):
    """Who listens on a TCP port, at any address; empty where `ss` is missing."""

    def command(self, port: int) -> str:
        """Root sees every process."""
        return HOLDERS.replace("@PORT@", str(port)).strip()

    def process(self, output: list[str]) -> list[Holder]:
        """One holder a line."""
        rows = [line.strip().removeprefix("holder=").split(" ", 2) for line in output if line.startswith("holder=")]
        return [Holder(int(process), unit, name) for process, unit, name in rows]

    @staticmethod
    def default() -> list[Holder]:
        """Nobody."""
        return []

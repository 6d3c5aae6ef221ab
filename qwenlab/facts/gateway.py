"""How the gateway stands on a host, and who holds its port."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api.facts import FactBase

from qwenlab.facts.own_service import OwnServiceFact

HOLDERS = r"""
ss -Hltnp "sport = :@PORT@" 2>/dev/null | sed -n 's/.*users:(("\([^"]*\)",pid=\([0-9]*\),.*/\1 \2/p' | sort -u |
while read -r name process; do
    unit=$(sed -n 's|.*/\([^/]*\.service\).*|\1|p' "/proc/$process/cgroup" 2>/dev/null | head -n1)
    echo "holder=$process ${unit:-none} $name"
done
true
"""


class Gateway(OwnServiceFact):
    """How the gateway stands; it loads its configuration and its certificate."""

    key, what = "gateway", "the gateway"
    files = ("/etc/qwen/gateway/haproxy.cfg", "/etc/qwen/gateway/tls.pem")


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

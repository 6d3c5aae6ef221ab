"""The lab's network: a bridge with an address on this machine, one network namespace for each host, NAT to outside.

Everything is named after the lab's number, so that what a dead run left can be found and removed by name alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from tests.lab.shell import LabError, run

NUMBERS = range(255)
_POOL = IPv4Network("10.213.0.0/16")


@dataclass(frozen=True)
class LabNetwork:
    """Names and addresses of lab `number`; creates nothing by itself."""

    number: int

    @property
    def bridge(self) -> str:
        """Name of the bridge on this machine."""
        return f"qwl{self.number}"

    @property
    def table(self) -> str:
        """Name of the nftables table."""
        return f"qwenlab_lab_{self.number}"

    @property
    def subnet(self) -> IPv4Network:
        """The lab's /24."""
        return list(_POOL.subnets(new_prefix=24))[self.number]

    @property
    def gateway(self) -> IPv4Address:
        """This machine's address in the lab: default route of the hosts, and where local servers listen."""
        return self.subnet[1]

    def address(self, index: int) -> IPv4Address:
        """Address of the host with this index (0 is the first)."""
        return self.subnet[10 + index]

    def namespace(self, index: int) -> str:
        """Name of a host's network namespace."""
        return f"{self.bridge}-{index}"

    def port(self, index: int) -> str:
        """Name of a host's end on the bridge."""
        return f"{self.bridge}h{index}"


def is_free(network: LabNetwork) -> bool:
    """No route of this machine leads into the lab's subnet and no bridge has its name."""
    for route in json.loads(run(["ip", "-4", "-json", "route", "show", "table", "all"]).stdout or "[]"):
        if route["dst"] != "default" and IPv4Network(route["dst"], strict=False).overlaps(network.subnet):
            return False
    return not Path(f"/sys/class/net/{network.bridge}").exists()


def uplink() -> tuple[str, int]:
    """Interface of this machine's default route and its MTU in bytes."""
    routes = json.loads(run(["ip", "-4", "-json", "route", "show", "default"]).stdout or "[]")
    if not routes:
        raise LabError("this machine has no default route; lab hosts install packages and need one")
    device = str(routes[0]["dev"])
    return device, int(Path(f"/sys/class/net/{device}/mtu").read_text())


def open_bridge(network: LabNetwork) -> None:
    """Create bridge, address, forwarding and NAT. Undone by `close`."""
    device, mtu = uplink()
    run(["ip", "link", "add", network.bridge, "mtu", str(mtu), "type", "bridge", "forward_delay", "0"])
    run(["ip", "address", "add", f"{network.gateway}/24", "dev", network.bridge])
    run(["ip", "link", "set", network.bridge, "up"])
    for name in (network.bridge, device):
        _forwarding(name).write_text("1")
    run(["nft", "-f", "-"], stdin=_rules(network))


def open_host(network: LabNetwork, index: int) -> None:
    """Create a host's namespace with `host0` in it, joined to the bridge."""
    _, mtu = uplink()
    space, port = network.namespace(index), network.port(index)
    run(["ip", "netns", "add", space])
    peer = ("peer", "name", "host0", "mtu", str(mtu), "netns", space)
    run(["ip", "link", "add", port, "mtu", str(mtu), "type", "veth", *peer])
    run(["ip", "link", "set", port, "master", network.bridge, "up"])
    run(["ip", "-netns", space, "address", "add", f"{network.address(index)}/24", "dev", "host0"])
    for device in ("lo", "host0"):
        run(["ip", "-netns", space, "link", "set", device, "up"])
    run(["ip", "-netns", space, "route", "add", "default", "via", str(network.gateway)])


def cut(network: LabNetwork, index: int) -> None:
    """Drop what this host sends to other networks or begins with this machine; it still answers this machine."""
    address = str(network.address(index))
    run(["nft", "add", "element", "inet", network.table, "cut", f"{{ {address} }}"])


def mend(network: LabNetwork, index: int) -> None:
    """Undo `cut`."""
    address = str(network.address(index))
    run(["nft", "delete", "element", "inet", network.table, "cut", f"{{ {address} }}"])


def close(network: LabNetwork) -> None:
    """Remove every namespace, link and rule of the lab, whatever part of them exists."""
    spaces = [line.split()[0] for line in run(["ip", "netns", "list"]).stdout.splitlines() if line]
    for space in spaces:
        if space.startswith(f"{network.bridge}-"):
            run(["ip", "netns", "delete", space])
    ports = [path.name for path in Path("/sys/class/net").iterdir() if path.name.startswith(f"{network.bridge}h")]
    for link in (*ports, network.bridge):
        run(["ip", "link", "delete", link], check=False)
    run(["nft", "delete", "table", "inet", network.table], check=False)


def forwarding_of_uplink() -> tuple[str, str]:
    """The uplink's forwarding switch (path) and its present value."""
    path = _forwarding(uplink()[0])
    return str(path), path.read_text().strip()


def _forwarding(device: str) -> Path:
    return Path(f"/proc/sys/net/ipv4/conf/{device}/forwarding")


def _rules(network: LabNetwork) -> str:
    return f"""
table inet {network.table} {{
    set cut {{
        type ipv4_addr
    }}
    chain postrouting {{
        type nat hook postrouting priority srcnat
        ip saddr {network.subnet} ip daddr != {network.subnet} masquerade
    }}
    chain forward {{
        type filter hook forward priority filter
        ip saddr @cut counter drop
    }}
    chain input {{
        type filter hook input priority filter
        iifname "{network.bridge}" ip saddr @cut ct state new counter drop
    }}
}}
"""

"""What a lab host must know of the network around this machine: mirrors, name servers, certificates, proxies."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from tests.lab.shell import LabError, run

DEBIAN = "http://deb.debian.org/debian"
DEBIAN_SECURITY = "http://deb.debian.org/debian-security"

_APT_OPTIONS = re.compile(
    r"^(Acquire::(?:https?::(?:Proxy|CAInfo|Timeout)[^ ]*|Check-Valid-Until|Check-Date|Retries)) \"(.+)\";$"
)
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "all_proxy")


def extra_ca_certificates() -> list[Path]:
    """Certificates that this machine trusts beside the distribution's own, in the place where Debian looks for them."""
    return sorted(Path("/usr/local/share/ca-certificates").rglob("*.crt"))


@cache
def apt_options() -> dict[str, str]:
    """apt's proxy, retry and validity options as set on this machine (empty where apt is not)."""
    dump = run(["apt-config", "dump"]).stdout
    return {match[1]: match[2] for line in dump.splitlines() if (match := _APT_OPTIONS.match(line))}


@cache
def debian_mirrors() -> tuple[str, str]:
    """Addresses of the Debian archive and its security archive: this machine's own mirrors where it names some."""
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    text = "\n".join(p.read_text() for p in places if p.suffix in (".list", ".sources") and p.is_file())
    found = re.findall(r"https?://[^\s\]]+", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    main = [address.rstrip("/") for address in found if address.rstrip("/").endswith("/debian")]
    security = [address.rstrip("/") for address in found if address.rstrip("/").endswith("/debian-security")]
    return (main or [DEBIAN])[0], (security or [DEBIAN_SECURITY])[0]


def name_servers() -> list[str]:
    """IPv4 name servers that can be reached from another address than this machine's loopback.

    Raises:
        LabError: none is known; `QWENLAB_LAB_DNS` (addresses separated by commas) names some.
    """
    if named := os.environ.get("QWENLAB_LAB_DNS"):
        return named.split(",")
    for path in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"):
        if Path(path).exists():
            servers = re.findall(r"^nameserver\s+(\d+\.\d+\.\d+\.\d+)", Path(path).read_text(), re.MULTILINE)
            if reachable := [server for server in servers if not server.startswith("127.")]:
                return reachable
    raise LabError("this machine names no resolver but itself; say QWENLAB_LAB_DNS=<address> for the lab hosts")


def proxy_environment() -> dict[str, str]:
    """HTTP proxy variables of this process, for the hosts' /etc/environment."""
    return {name: os.environ[name] for name in _PROXIES if os.environ.get(name)}

"""The lab: real Debian hosts on this machine, booted for a test and removed without a trace.

    from tests import lab

    with lab.hosts(2, release="trixie") as hosts:
        hosts[0].ssh_run("systemctl is-system-running")

See docs/lab.md.
"""

from __future__ import annotations

from tests.lab.host import Host, HostSpec
from tests.lab.lab import Lab, hosts
from tests.lab.shell import LabError

__all__ = ["Host", "HostSpec", "Lab", "LabError", "hosts"]

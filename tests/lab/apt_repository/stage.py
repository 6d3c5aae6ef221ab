"""A bare Debian box with cards in it, ready for a driver to be installed on."""

from __future__ import annotations

import os

from tests.lab.apt_repository.server import RepositoryServer
from tests.sim.inventory import SimHost
from tests.sim.lab_host import LabHost, SimulatedGpus

KERNEL_KEYRING = "/usr/share/keyrings/qwenlab-lab-kernel.gpg"
KERNEL_LIST = "/etc/apt/sources.list.d/qwenlab-lab-kernel.list"


class DriverStage:
    """One lab host with simulated cards whose packages come from a `RepositoryServer`."""

    def __init__(self, host: LabHost, repository: RepositoryServer) -> None:
        self.host = host
        self.repository = repository
        self.gpus = SimulatedGpus(host)

    def prepare(
        self, inventory: SimHost, *, nouveau: bool = True, secure_boot: bool = False, headers: bool = False
    ) -> None:
        """Cards on the bus, no driver, and a kernel image installed by package whose headers apt can find.

        `nouveau` holds the cards at boot until something blacklists it; `headers`: they are installed already.
        """
        key = self.repository.kernel_url(), self.repository.public_key()
        self.host.put(key[1], KERNEL_KEYRING)
        self.host.put(f"deb [signed-by={KERNEL_KEYRING}] {key[0]}/ /\n".encode(), KERNEL_LIST)
        release = os.uname().release
        wanted = [f"linux-image-{release}", *([f"linux-headers-{release}"] if headers else [])]
        only = f"-o Dir::Etc::sourcelist={KERNEL_LIST} -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0"
        self.host.ssh_run(
            f"apt-get -qq {only} update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install {' '.join(wanted)}"
        )
        self.gpus.install(inventory, driver=None, nouveau=nouveau, secure_boot=secure_boot)

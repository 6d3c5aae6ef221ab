"""NVIDIA's apt repository as a local server, with simulated drivers in it.

    with RepositoryServer(str(lab_host.lab.gateway)) as repository:
        stage = DriverStage(lab_host, repository)
        stage.prepare(inventory.load("1x3090"))          # a bare Debian box: card held by nouveau, no driver
        ...                                              # product: mirror address = repository.url()
        lab_host.reboot()                                # the DKMS module loads; nvidia-smi works

What is real: dpkg-deb, apt-ftparchive, GnuPG, the flat layout `compute/cuda/repos/<distribution>/x86_64/`, names and
relations of the packages, DKMS (Debian's own: it compiles a module for the kernel, and modinfo and depmod find it),
apt's verification of the signatures. What is simulated: the module is an object that no kernel loads. At boot, and on
`modprobe nvidia`, the lab host's stand-in for a kernel (tests/sim/kernel.sh, modprobe.sh) reads its version and licence
with modinfo and shows the driver as loaded, unless nouveau holds the cards, Secure Boot refuses it, or it drives none.

`repository.url(variant)` is the base address to configure in place of
`https://developer.download.nvidia.com/compute/cuda/repos`; see `Variant` for the broken ones. Fingerprints differ from
NVIDIA's: `repository.fingerprint(variant)`.
"""

from __future__ import annotations

from tests.lab.apt_repository.layout import DISTRIBUTIONS, Variant
from tests.lab.apt_repository.server import Fault, RepositoryServer
from tests.lab.apt_repository.stage import DriverStage

__all__ = ["DISTRIBUTIONS", "DriverStage", "Fault", "RepositoryServer", "Variant"]

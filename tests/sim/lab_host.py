"""Simulated cards on a booted lab host, below everything that the product looks at.

    bench = SimulatedGpus(host)
    bench.install(inventory.load("2x3090-nvlink"))       # driver in place and loaded: nvidia-smi lists both cards
    bench.set_faults(Fault.lost(1))
    host.reboot()                                        # cards are back; power limits and persistence are forgotten

    bench.install(inventory.load("1x3090"), driver=None)  # a bare host: the cards are on the PCI bus, no driver

What lies on the host afterwards: the inventory in /etc/qwen-sim, a unit that mounts the PCI devices and the loaded
module over sysfs and procfs at every boot (tests/sim/kernel.sh), and, where the driver is there, the library and
nvidia-smi where NVIDIA's packages put them (WSL2: where Windows mounts them). On a host without driver, packages bring
the two programs and a module: see tests/lab/apt_repository.
"""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Literal, Protocol

from tests.sim import build, faults
from tests.sim.compiled import compile_inventory
from tests.sim.inventory import SimHost
from tests.sim.tree import Module, write_module, write_pci

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
WSL_LIBRARIES = "/usr/lib/wsl/lib"
HIDDEN = "/etc/qwen-sim/hidden"  # where the library waits while it is missing
RUN = Path("/run/qwen-sim")  # where kernel.sh lays the tree on the host
UNIT = """\
[Unit]
Description=Simulated NVIDIA cards
DefaultDependencies=no
Before=sysinit.target systemd-modules-load.service
After=local-fs.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/qwen-sim/kernel boot

[Install]
WantedBy=sysinit.target
"""


# A container may not read the kernel's log; this is what its own kernel would have said.
DMESG = "#!/bin/sh\ncat /etc/qwen-sim/kmsg /run/qwen-sim/kmsg 2>/dev/null\nexit 0\n"
# Packages may bring modprobe later, and replace it: the diversion holds either way.
DIVERT = (
    "for place in /usr/sbin/modprobe /sbin/modprobe; do"
    " dpkg-query -S $place >/dev/null 2>&1 || continue;"
    " dpkg-divert --quiet --local --rename --divert $place.kmod --add $place;"
    " ln -sfn /usr/lib/qwen-sim/modprobe $place; break; done"
)
UNDIVERT = (
    "for place in /usr/sbin/modprobe /sbin/modprobe; do"
    " dpkg-divert --list $place | grep -q . || continue;"
    " rm -f $place; dpkg-divert --quiet --local --rename --remove $place; done;"
)
# a library that a fault has hidden goes back to its place
RESTORE = f"for file in {HIDDEN}/*; do test ! -e $file || mv $file {LIBRARIES}/; done;"
DISOWN = (
    f"for file in {LIBRARIES}/libnvidia-ml.so* /usr/bin/nvidia-smi; do"
    " dpkg-query -S $file >/dev/null 2>&1 || rm -f $file; done; ldconfig"
)


class LabHost(Protocol):
    """The part of a lab host (tests/lab/host.py) that is used here."""

    def ssh_run(self, command: str, *, check: bool = True) -> Any:
        """Run a shell command as root."""

    def put(self, content: bytes, remote: str, mode: str = "0644") -> None:
        """Write a file."""


class SimulatedGpus:
    """The simulated cards of one lab host."""

    def __init__(self, host: LabHost) -> None:
        self.host = host

    def install(
        self,
        inventory: SimHost,
        driver: Literal["loaded"] | None = "loaded",
        *,
        nouveau: bool = True,
        secure_boot: bool = False,
    ) -> None:
        """Put the machine's cards on the host, now and at every boot; replaces what was installed before.

        With `driver="loaded"` the driver of the inventory works as if installed long ago. With None the host is bare;
        `nouveau` then holds the cards until something blacklists it. With `secure_boot` the firmware says that it is on
        and no NVIDIA module that packages bring can be loaded, since its key is not enrolled.
        """
        self.remove()
        with tempfile.TemporaryDirectory() as scratch:
            _write_host_tree(
                Path(scratch), inventory, driver == "loaded", {"nouveau": nouveau, "secure-boot": secure_boot}
            )
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for name in ("etc", "usr"):  # not ".": it would give / the mode of a temporary directory
                    tar.add(Path(scratch) / name, arcname=name, filter=_as_root)
        self.host.put(archive.getvalue(), "/tmp/qwen-sim.tar")
        if driver == "loaded":
            self._put_driver(inventory)
        self.host.ssh_run(
            f"{DIVERT}; tar -x -C / -f /tmp/qwen-sim.tar --keep-directory-symlink && rm /tmp/qwen-sim.tar"
            " && systemctl daemon-reload && systemctl enable --quiet --now qwen-sim-hardware.service"
        )

    def remove(self) -> None:
        """Take cards and driver away again; files that packages brought stay."""
        self.host.ssh_run(
            f"{UNDIVERT} {RESTORE} systemctl disable --quiet --now qwen-sim-hardware.service 2>/dev/null;"
            " umount -q /sys/firmware /proc/driver /sys/module /run/qwen-sim/real-modules /sys/bus/pci/drivers"
            " /sys/bus/pci/devices /proc/version /proc/sys/kernel/osrelease 2>/dev/null;"
            f" rm -rf /etc/qwen-sim /usr/lib/qwen-sim /run/qwen-sim /usr/lib/wsl"
            f" /usr/local/bin/dmesg /dev/nvidia* /dev/dxg; {DISOWN}",
            check=False,
        )

    def set_faults(self, fault: faults.Fault) -> None:
        """Break what `fault` says and mend everything else; running clients notice at their next call."""
        self.host.put(fault.text().encode(), "/etc/qwen-sim/faults.new")
        source, target = (LIBRARIES, HIDDEN) if fault.nvml_missing else (HIDDEN, LIBRARIES)
        self.host.ssh_run(
            f"mv /etc/qwen-sim/faults.new /etc/qwen-sim/faults; mkdir -p {HIDDEN};"
            f" for file in {source}/libnvidia-ml.so*; do test ! -e $file || mv $file {target}/; done; ldconfig"
        )

    def kernel_log(self, *lines: str) -> None:
        """What `dmesg` shows from now on, beside what the simulated kernel itself logs (e.g. Xid lines)."""
        self.host.put("".join(f"{line}\n" for line in lines).encode(), "/etc/qwen-sim/kmsg")

    def load_module(self, version: str, flavour: Literal["open", "proprietary"] = "open") -> None:
        """Replace the loaded kernel module, as a reboot after a half-done upgrade does."""
        self.host.ssh_run(f"/usr/lib/qwen-sim/kernel unload && /usr/lib/qwen-sim/kernel load {version} {flavour}")

    def unload_module(self) -> None:
        """No NVIDIA module is loaded until the next boot."""
        self.host.ssh_run("/usr/lib/qwen-sim/kernel unload")

    def _put_driver(self, inventory: SimHost) -> None:
        programs = build.programs()
        folder = WSL_LIBRARIES if inventory.wsl2 else LIBRARIES
        library = f"{folder}/libnvidia-ml.so.{inventory.driver}"
        self.host.put(programs.library.read_bytes(), library)
        self.host.put(programs.smi.read_bytes(), f"{folder if inventory.wsl2 else '/usr/bin'}/nvidia-smi", "0755")
        self.host.put(f"{folder}\n".encode(), "/etc/ld.so.conf.d/qwen-sim.conf")
        self.host.ssh_run(f"ln -sfn {library} {folder}/libnvidia-ml.so.1 && ldconfig")


def _write_host_tree(root: Path, inventory: SimHost, loaded: bool, marks: dict[str, bool]) -> None:
    etc = root / "etc/qwen-sim"
    etc.mkdir(parents=True)
    (etc / "inventory").write_text(compile_inventory(inventory))
    write_pci(etc / "tree/pci", inventory, "none", RUN)
    for link in (etc / "tree/pci/sys/devices").rglob("driver"):
        link.unlink()
    for flavour in ("open", "proprietary"):
        write_module(etc / "tree" / flavour, inventory, Module("@VERSION@", flavour))
    if loaded:
        (etc / "boot-module").write_text(f"{inventory.driver} {inventory.module}\n")
    for name, wanted in marks.items():
        if wanted:
            (etc / name).touch()
    if inventory.wsl2:
        release = "6.6.87.2-microsoft-standard-WSL2"
        for name, text in (("proc/version", f"Linux version {release} (gcc)"), ("proc/sys/kernel/osrelease", release)):
            place = etc / "wsl2" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"{text}\n")
    library = root / "usr/lib/qwen-sim"
    library.mkdir(parents=True)
    (library / "real").mkdir()
    (library / "real/modprobe").symlink_to("/bin/kmod")
    for name in ("kernel", "modprobe"):
        place = library / name
        place.write_bytes((Path(__file__).parent / f"{name}.sh").read_bytes())
        place.chmod(0o755)
    dmesg = root / "usr/local/bin/dmesg"
    dmesg.parent.mkdir(parents=True)
    dmesg.write_text(DMESG)
    dmesg.chmod(0o755)
    unit = root / "etc/systemd/system/qwen-sim-hardware.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(UNIT)


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry

"""Diagnoses of the host around the cards: kernel, C library, WSL2, Secure Boot, shared memory, IOMMU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from qwenlab.facts import xids
from qwenlab.facts.findings import Findings, error, info, warning
from qwenlab.host_inventory import Ancestor, Diagnosis

# microsoft/WSL documentation, GPU compute: the paravirtualised GPU needs 5.10.43.3 or newer.
OLDEST_WSL_KERNEL = (5, 10, 43)
# NCCL 2.x cuMem calls fail on older kernels (vllm-project/vllm 19045, 5405).
OLDEST_KERNEL = (5, 4)
# manylinux_2_31: the tag of current vLLM wheels.
OLDEST_GLIBC = (2, 31)
_SHM_GIB = 8.0
_ONE_SWITCH = (Ancestor.PIX, Ancestor.PXB)


def no_card(findings: Findings) -> Iterable[Diagnosis]:
    """Nothing to plan."""
    if findings.cards or findings.driver_failure is not None or findings.sources.unreadable:
        return
    log = findings.sources.kernel
    named = {address: f"Xid {', '.join(map(xids.told, codes))}" for address, codes in log.xids.items()}
    named |= {address: "not driven" for address in log.undriven if address not in named}
    if named:
        cards = "; ".join(f"{address} ({what})" for address, what in named.items())
        yield error("no_gpu", f"No source lists a card; the kernel log names {cards}.")
    else:
        yield error("no_gpu", "No NVIDIA card was found on this host.")


def wsl(findings: Findings) -> Iterable[Diagnosis]:
    """WSL2 takes its driver from Windows; a Linux driver inside shadows it (microsoft/WSL 11589), and a card in TCC
    mode beside others takes all of them away (microsoft/WSL 13027)."""
    host = findings.host
    if not host.wsl2:
        return
    yield info("wsl2", "WSL2: the Windows driver serves; install no Linux driver here. There is no peer access.")
    kernel = _numbers(host.os.kernel)
    if kernel and kernel[:3] < OLDEST_WSL_KERNEL:
        yield error(
            "wsl_kernel_too_old",
            f"WSL kernel {host.os.kernel}: GPUs need 5.10.43 or newer; `wsl --update`.",
        )
    lost = [card for reading in findings.sources.driver_readings for card in reading.lost]
    if any("unknown error" in (card.why or "").lower() for card in lost):
        yield error(
            "wsl_card_in_tcc",
            "WSL2 names cards and opens none of them: that comes of a card in TCC mode, even beside others. Look at "
            "`nvidia-smi` in Windows; `nvidia-smi -g N -dm 0` there puts card N into WDDM mode, then reboot Windows.",
        )
    shadowing = sorted(
        name for name in host.driver.packages if re.match(r"libnvidia-compute|libcuda1|nvidia-driver", name)
    )
    if shadowing:
        yield warning(
            "wsl_linux_driver_installed",
            f"These packages shadow the Windows driver: apt-get remove {' '.join(shadowing)}.",
        )


def old_base(findings: Findings) -> Iterable[Diagnosis]:
    """A kernel or C library that current wheels do not run on."""
    host = findings.host
    kernel = _numbers(host.os.kernel)
    if kernel and kernel[:2] < OLDEST_KERNEL and not host.wsl2:
        yield warning(
            "kernel_too_old",
            f"Kernel {host.os.kernel}: NCCL wants 5.4 or newer; plans over several cards set NCCL_CUMEM_ENABLE=0.",
        )
    glibc = _numbers(host.glibc)
    if glibc and glibc[:2] < OLDEST_GLIBC:
        yield error("glibc_too_old", f"glibc {host.glibc}: vLLM's wheels need 2.31 or newer.")


def secure_boot(findings: Findings) -> Iterable[Diagnosis]:
    """Before a driver is there, Secure Boot decides which package can work."""
    host = findings.host
    if host.secure_boot and host.driver.loaded is None and findings.cards:
        yield warning(
            "secure_boot",
            "Secure Boot is on: only a signed module loads. Take the distribution's pre-signed linux-modules-nvidia "
            "packages, or enrol a key at the firmware screen before a DKMS driver is installed.",
        )


def shared_memory(findings: Findings) -> Iterable[Diagnosis]:
    """NCCL without peer access talks through /dev/shm."""
    size = findings.host.shm_total_gib
    if size is not None and size < _SHM_GIB and len(findings.host.usable_gpus) > 1:
        yield warning("shm_small", f"/dev/shm has {size:g} GiB; NCCL between cards wants {_SHM_GIB:g} GiB or more.")


def peer_redirection(findings: Findings) -> Iterable[Diagnosis]:
    """ACS or an IOMMU sends peer traffic up to the host bridge: pairs of one switch hang (NVIDIA/nccl 667), and so do
    cards of different root ports that have peer access (NVIDIA/nccl 2079 at PHB, vllm-project/vllm 51513 at NODE)."""
    host = findings.host
    plain = [pair for pair in host.pairs if not pair.nvlink_lanes]
    if host.acs_redirects and any(pair.ancestor in _ONE_SWITCH or pair.peer_read for pair in plain):
        yield warning(
            "acs_redirects_peers",
            "PCIe ACS redirects traffic between cards through the IOMMU: peer copies may hang, between cards of one "
            "switch and of two root ports alike. Switch ACS off for the bridges above them (firmware, or `setpci -s "
            "BRIDGE ECAP_ACS+6.w=0000` until the next boot), or the IOMMU, or leave peer access off.",
        )


def _numbers(text: str | None) -> tuple[int, ...]:
    match = re.match(r"[0-9]+(?:\.[0-9]+)*", text or "")
    return tuple(int(part) for part in match.group(0).split(".")) if match else ()


RULES: tuple[Callable[[Findings], Iterable[Diagnosis]], ...] = (
    no_card,
    wsl,
    old_base,
    secure_boot,
    shared_memory,
    peer_redirection,
)

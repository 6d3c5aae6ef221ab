"""Diagnoses of the host around the cards: kernel, C library, WSL2, Secure Boot, shared memory, IOMMU."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from qwenlab.facts.findings import Findings, error, info, warning
from qwenlab.host_inventory import Ancestor, Diagnosis

# microsoft/WSL documentation, GPU compute: the paravirtualised GPU needs 5.10.43.3 or newer.
OLDEST_WSL_KERNEL = (5, 10, 43)
# NCCL 2.x cuMem calls fail on older kernels (vllm-project/vllm 19045, 5405).
OLDEST_KERNEL = (5, 4)
# manylinux_2_31: the tag of current vLLM wheels.
OLDEST_GLIBC = (2, 31)
_SHM_GIB = 8.0


def no_card(findings: Findings) -> Iterable[Diagnosis]:
    """Nothing to plan."""
    if not findings.cards and findings.driver_failure is None and not findings.sources.unreadable:
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
    """ACS or an IOMMU sends peer traffic up to the host bridge: close pairs hang, far ones work (NVIDIA/nccl 667)."""
    host = findings.host
    close = any(pair.ancestor in (Ancestor.PIX, Ancestor.PXB) and not pair.nvlink_lanes for pair in host.pairs)
    if host.acs_redirects and close:
        yield warning(
            "acs_redirects_peers",
            "PCIe ACS redirects traffic between cards of one switch: peer copies may hang. Switch ACS off for these "
            "bridges, or the IOMMU off in the firmware, or leave peer access off.",
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

"""What a person is told about a driver: what is wrong and what to do."""

from __future__ import annotations

import re

from qwenlab.driver.packages import belongs
from qwenlab.driver.state import DriverState
from qwenlab.driver.tables import DISTRIBUTIONS

RUNFILE = (
    "the driver came from NVIDIA's .run file (/usr/bin/nvidia-uninstall): packages over it leave two drivers; "
    "remove it (nvidia-uninstall), reboot, and run again"
)

# part of what apt says -> what is behind it
APT_ADVICE = {
    "SHA1 is not considered secure": "apt_key_sha1: the repository's key is bound by a SHA-1 signature, which this "
    "release's apt refuses since 2026-02-01. Use the directory that NVIDIA made for the release (debian13 for Debian "
    "13), from a current mirror; do not switch off the check.",
    "EXPKEYSIG": "the repository's signing key has expired: renew the mirror, or set qwen_driver_key_fingerprint to "
    "the new key.",
    "Expired on": "the repository's signing key has expired: renew the mirror, or set qwen_driver_key_fingerprint to "
    "the new key.",
    "NO_PUBKEY": "the repository is signed with another key than the one expected for this release: check "
    "qwen_driver_repository and qwen_driver_key_fingerprint.",
    "is not signed": "the repository carries no signature: the mirror is incomplete or not NVIDIA's.",
    "Could not get lock": "another package manager works on this host (named above): wait for it, or raise "
    "qwen_apt_lock_timeout_s. Do not delete the lock.",
    "Could not connect": "a repository (named above) does not answer: check its address (NVIDIA's is "
    "qwen_driver_repository) and the proxies, run again; what was begun is completed.",
    "Connection failed": "the repository broke off: run again; what was begun is completed.",
    "held broken packages": "packages that cannot be installed together: see the lines above, and apt-mark showhold.",
}


def wsl(state: DriverState) -> tuple[str, ...]:
    """Windows drives the cards; packages in here would hide its library."""
    shadowing = sorted(name for name in state.driver_packages if belongs(name))
    note = "WSL2: the Windows driver serves the cards, no driver is installed in here"
    if not shadowing:
        return (note,)
    return (
        note,
        f"driver packages hide the Windows driver's libraries (/usr/lib/wsl/lib); remove them: "
        f"apt-get purge {' '.join(shadowing)} && ldconfig",
    )


OLDEST_WSL_KERNEL = (5, 10, 43)  # GPU paravirtualisation (vllm-project/vllm 6184)


def kernel_numbers(release: str) -> tuple[int, ...]:
    """The three numbers of a kernel release; one that is not readable counts as new."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", release)
    return tuple(int(part) for part in found.groups()) if found else (999,)


def wsl_kernel_too_old(release: str) -> str:
    """B26: no card reaches the guest."""
    oldest = ".".join(map(str, OLDEST_WSL_KERNEL))
    return (
        f"wsl_kernel_too_old: kernel {release} has no GPU support, {oldest} or newer has: run `wsl --update` in Windows"
    )


def in_container(kind: str) -> str:
    """A container has no kernel of its own."""
    return f"this is a container ({kind}): install the driver on the machine that runs it, and give it the cards"


def too_old(loaded: str) -> str:
    """A driver that works and is too old for CUDA 13."""
    return (
        f"driver {loaded} works, but CUDA 13 needs 580 or newer: set qwen_driver_branch = 580 to have it replaced "
        "(that takes a reboot)"
    )


def mismatch(state: DriverState) -> str:
    """B01: the libraries were updated under the loaded module."""
    return (
        f"driver packages are {state.user_space}, the loaded module is {state.loaded}: the driver was updated while it "
        "ran; nothing is to be installed, the module must be loaded anew"
    )


def no_network(state: DriverState) -> str:
    """A bundle carries no driver."""
    names = ", ".join(card.label for card in state.cards)
    return (
        f"no driver works for {names}, and with qwen_offline none is fetched: install one on the host first "
        "(580 or newer, from packages that you carry there, or by plays/driver.py from a mirror without qwen_offline)"
    )


def unknown_system(state: DriverState) -> str:
    """A derivative or a release without a row."""
    known = ", ".join(f"{os} {release}" for os, release in DISTRIBUTIONS)
    return (
        f"{state.os or 'this system'} {state.release} is not one that a driver is installed on ({known}): install the "
        "driver as its vendor says and run again; a driver that works is left alone"
    )


def kernel_too_new(branch: int, kernel: str) -> str:
    """The branch's module does not build on the kernel."""
    return (
        f"the kernel module of driver {branch} does not build on kernel {kernel}: use qwen_driver_branch = 580 or 595"
    )


def dkms_too_old(branch: int, have: tuple[int, int, int], need: tuple[int, int, int]) -> str:
    """The distribution's dkms does not do."""
    return (
        f"driver {branch} needs dkms {'.'.join(map(str, need))}, this release has {'.'.join(map(str, have))}: "
        "use qwen_driver_branch = 580 or 595"
    )


def two_worlds(names: list[str]) -> str:
    """Packages of Ubuntu's archive are there."""
    return (
        f"driver packages of Ubuntu's archive are installed ({', '.join(names)}), and NVIDIA's do not mix with them: "
        f"repair them, or remove them and run again: apt-get purge {' '.join(names)} && apt-get autoremove --purge"
    )


def secure_boot(state: DriverState) -> str:
    """B05: a module that this host builds is refused by its firmware."""
    return (
        "Secure Boot is on and would reject a kernel module that this host builds. Two ways, both at the machine: "
        "(1) switch Secure Boot off in the firmware; (2) enrol DKMS's key: apt-get install dkms mokutil; "
        "dkms generate_mok; mokutil --import /var/lib/dkms/mok.pub (asks for a one-time password); reboot, choose "
        "'Enroll MOK' on the console and type the password. Then run again. Nothing was changed"
    )


def no_module(state: DriverState) -> str:
    """DKMS built nothing for the kernel that will boot."""
    status = "; ".join(line.strip() for line in state.dkms) or "nothing"
    return (
        f"no nvidia module for kernel {state.boot_kernel}, which boots next (dkms status: {status}): the build failed, "
        "see /var/lib/dkms/nvidia/*/build/make.log; use another branch or an older kernel"
    )


def next_kernel_without_module(state: DriverState) -> str:
    """All is well until the next boot."""
    return (
        f"kernel {state.boot_kernel}, which boots next, has no nvidia module: install its headers and run "
        f"`dkms autoinstall -k {state.boot_kernel}`, or run qwenlab again after the reboot"
    )


def runs_without_cards(state: DriverState) -> str:
    """The right driver runs and a card is missing: hardware or firmware, not packages."""
    text = "\n".join(state.log)
    if "no space" in text or "failed to assign" in text:
        why = (
            "the firmware left no address space for a card's memory window (BAR 1): switch on 'Above 4G decoding' and "
            "'Resizable BAR', or boot with pci=realloc"
        )
    elif "fallen off the bus" in text:
        why = "a card has fallen off the bus: power off, check its power cables and slot"
    else:
        why = "check the cards' power cables and slots, and the kernel log (dmesg | grep NVRM)"
    said = "; ".join(state.smi[:3]) or "nothing"
    return (
        f"driver {state.loaded} runs and lists {state.listed} of {len(state.cards)} cards (nvidia-smi: {said}); {why}. "
        "The driver is not reinstalled: that would not help"
    )


def reboot_needed(state: DriverState) -> str:
    """A reboot that nobody allowed."""
    why = (
        f"{state.holder} holds the cards"
        if state.holder
        else f"module {state.loaded} is loaded"
        if state.loaded
        else f"kernel {state.boot_kernel} must be booted"
        if state.boot_kernel != state.running
        else "the module cannot be loaded now"
    )
    return (
        f"driver {state.module} is installed and comes alive at the next boot ({why}): reboot the host and run again, "
        "or set qwen_allow_reboot = True"
    )


def own_machine() -> str:
    """The machine that pyinfra runs on."""
    return "this is the machine that pyinfra runs on, which is never rebooted by a run: reboot it by hand and run again"


def after_reboot(state: DriverState) -> str:
    """B04: the one reboot did not help; a diagnosis instead of a second one."""
    said = "; ".join(state.smi[:3]) or "nothing"
    lines = [f"the host was rebooted once for this driver, and it still does not work (nvidia-smi: {said})"]
    if len(state.module_files) > 1:
        lines.append(
            f"several nvidia modules lie there for kernel {state.boot_kernel}, and the wrong one may win: "
            f"{', '.join(state.module_files)}; remove the stray one"
        )
    if state.loaded and state.loaded != state.module:
        lines.append(
            f"module {state.loaded} was loaded and {state.module} lies on disk: an initramfs holds the old one; "
            "dkms autoinstall && update-initramfs -u -k all"
        )
    if state.holder:
        lines.append(f"{state.holder} still holds the cards: check /etc/modprobe.d, update-initramfs -u -k all")
    if any("rejected" in line for line in state.log):
        lines.append(
            "the kernel rejected the module's signature (Secure Boot): enrol DKMS's key "
            "(mokutil --import /var/lib/dkms/mok.pub)"
        )
    if state.loaded is None and not state.holder:
        lines.append("the module is not loaded: modprobe nvidia, and dmesg | tail say why")
    lines.append("it is not rebooted again: mend it, reboot by hand, and run again")
    return "; ".join(lines)

"""Diagnoses of the driver: absent, mismatched, of the wrong flavour, or in danger of being changed behind our back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from qwenlab.driver.state import NOVA
from qwenlab.driver.tables import CONTAINERS
from qwenlab.facts import xids
from qwenlab.facts.driver_text import branch
from qwenlab.facts.findings import Findings, error, info, warning
from qwenlab.facts.readings import FOREIGN_DRIVERS
from qwenlab.gpu_data import ModuleFlavour, family_of
from qwenlab.host_inventory import Diagnosis

# A package that has nothing to do with which module is loaded, though its name says nvidia.
_NOT_DRIVER = ("nvidia-container", "libnvidia-container", "nvidia-cuda", "cuda-", "nvidia-driver-pinning")


def library_mismatch(findings: Findings) -> Iterable[Diagnosis]:
    """The user-space library and the loaded module differ: every new CUDA program fails until the module is replaced.

    NVIDIA "Driver/library version mismatch"; pando85/homelab PR 4110.
    """
    driver = findings.host.driver
    if findings.driver_failure != "driver_library_mismatch":
        return
    library = next((item.library for item in findings.sources.driver_readings if item.library), None) or driver.library
    client, module = findings.sources.kernel.mismatch or (None, None)
    told = f"module {driver.loaded or module or 'unknown'}, library {library or client or 'unknown'}"
    files = driver.module_files
    advice = "Reboot; do not reinstall."
    if len(files) > 1:
        advice += (
            f" If it stays after one reboot, an older module wins at boot: {', '.join(files)}. "
            "Remove the stray one, run `dkms autoinstall` and `update-initramfs -u -k all`, reboot once more."
        )
    yield error("driver_library_mismatch", f"The NVIDIA driver was updated under the loaded module ({told}). {advice}")


def module_not_loaded(findings: Findings) -> Iterable[Diagnosis]:
    """The user space is there and finds no kernel module."""
    if findings.driver_failure != "module_not_loaded":
        return
    host = findings.host
    steps = []
    if host.wsl2:
        steps.append("WSL2 takes it from Windows: install the driver there, then `wsl --update` and `wsl --shutdown`")
    log = findings.sources.kernel
    nova = any(name in NOVA for name in (*log.holders, *(card.kernel_driver for card in findings.cards)))
    for name, holds in (("nouveau", host.driver.nouveau_loaded), ("nova_core", nova)):
        if holds:
            steps.append(f"{name} holds the cards: blacklist it, rebuild the initramfs, reboot")
    if "module_key_rejected" in findings.sources.kernel.conditions or host.secure_boot:
        steps.append("Secure Boot is on: the module must be signed by an enrolled key (`mokutil --list-enrolled`)")
    if not host.driver.module_files and "module_files" in findings.recording.captures:
        steps.append(
            f"no nvidia.ko for kernel {host.os.kernel or '(running)'}: install its headers, then `dkms autoinstall`"
        )
    dead = [
        f"{address} with Xid {xids.told(code)}"
        for address, codes in log.xids.items()
        for code in codes
        if code in xids.FATAL
    ]
    if dead:
        steps.append(f"it was loaded and lost {', '.join(dead)}: reboot")
    if "module_of_other_kernel" in log.conditions:
        steps.append("it was built for another kernel")
    if log.refusals:
        steps.append("it was loaded and would take no card, for the reason that the kernel log names")
    other = sorted({card.kernel_driver for card in findings.cards if card.kernel_driver in FOREIGN_DRIVERS})
    if other or ("held_by_other_driver" in log.conditions and not host.driver.nouveau_loaded and not nova):
        name = " and ".join(other) if other else "another driver (nouveau, nvidiafb or vfio-pci)"
        steps.append(f"{name} holds the cards (`lspci -nnk`)")
    if not steps:
        steps.append("check `lsmod`, `dkms status`, the kernel's headers, Secure Boot, nouveau, in this order")
    yield error("module_not_loaded", f"The NVIDIA kernel module is not loaded. {'; '.join(steps)}.")


def no_answer(findings: Findings) -> Iterable[Diagnosis]:
    """Any other failure of the driver, with what the kernel log knows about its reason."""
    failure = findings.sources.failure
    if findings.driver_failure is None or failure is None:
        return
    if findings.driver_failure in ("driver_library_mismatch", "module_not_loaded") or _nothing_of_nvidia(findings):
        return
    advice = {
        "no_devices": "The driver runs and drives no card.",
        "gpu_access_blocked": "Windows blocks the card: update its driver, then `wsl --shutdown`.",
        "nvml_missing": "libnvidia-ml.so.1 is not on the loader's path: `ldconfig`, or reinstall its package.",
        "smi_missing": "The driver's utilities are missing: install the package that holds nvidia-smi.",
        "smi_broken": "nvidia-smi itself does not run: a file of another processor, a broken disk or a damaged driver "
        "package; reinstall the package that holds it, and look into the kernel log.",
        "no_permission": "The user may not open /dev/nvidia*.",
        "probe_timeout": "The driver hangs; the kernel log tells of which card. Do not retry in a loop, reboot.",
    }.get(findings.driver_failure, "The driver does not answer.")
    if findings.driver_failure == "nvml_failed" and findings.host.virtualisation in CONTAINERS:
        advice = (
            "In a container this comes when systemd on its host reloads units and takes the devices away "
            "(NVIDIA/nvidia-docker 1730): restart the container, and see whether nvidia-smi works outside of it."
        )
    yield error(findings.driver_failure, f"{advice} It said: {failure.text}")


def _nothing_of_nvidia(findings: Findings) -> bool:
    """The bus was read and holds no card, and no driver is there: a missing library is then no fault."""
    driver = findings.host.driver
    bare = driver.loaded is None and driver.installed is None and findings.driver_failure == "nvml_missing"
    return bare and "pci" in findings.recording.captures and not findings.cards


def not_installed(findings: Findings) -> Iterable[Diagnosis]:
    """Cards without a driver: normal before the first run."""
    driver = findings.host.driver
    if findings.cards and driver.loaded is None and driver.installed is None and findings.driver_failure is None:
        named = any(reading.lost for reading in findings.sources.driver_readings)
        if named or any(card.index is not None for card in findings.cards):
            return
        yield info("driver_not_installed", "No NVIDIA driver yet: the cards are known by their PCI ids only.")


def wrong_flavour(findings: Findings) -> Iterable[Diagnosis]:
    """Blackwell needs the open kernel module, cards before Turing the proprietary one (driver README, kernel_open)."""
    loaded_open = findings.host.driver.open_module
    if loaded_open is None:
        return
    for card in findings.cards:
        spec = card.spec
        family = family_of(card.device_id, name=card.name)
        module = spec.module if spec else family.module if family else None
        needed = {ModuleFlavour.OPEN: True, ModuleFlavour.PROPRIETARY: False}.get(module) if module else None
        if needed is not None and needed != loaded_open:
            word = "open" if needed else "proprietary"
            yield error(
                f"needs_{word}_module", f"{card.label} works with the {word} kernel module only.", gpu=card.identity
            )


def dropped_by_branch(findings: Findings) -> Iterable[Diagnosis]:
    """A driver branch that no longer supports a card in the box, installed now or waiting for the reboot."""
    driver = findings.host.driver
    newest = max((value for value in (branch(driver.loaded), branch(driver.installed)) if value), default=None)
    for card in findings.cards:
        spec = card.spec
        family = family_of(card.device_id, name=card.name)
        last = spec.last_driver_branch if spec else family.last_driver_branch if family else None
        if last is not None and newest is not None and newest > last:
            yield warning(
                "driver_drops_card",
                f"{card.label} is supported up to driver branch {last}, not {newest}.",
                card.identity,
            )
        elif last is not None:
            yield info(
                "driver_branch_capped",
                f"{card.label} is supported up to driver branch {last}: a newer one would lose it.",
                gpu=card.identity,
            )


def reboot_due(findings: Findings) -> Iterable[Diagnosis]:
    """A newer module lies on disk while an older one works: harmless until something loads the newer library."""
    driver = findings.host.driver
    if findings.driver_failure is None and driver.loaded and driver.installed and driver.loaded != driver.installed:
        yield warning(
            "reboot_due", f"Driver {driver.installed} is installed, {driver.loaded} is running: reboot at a quiet hour."
        )


def partly_held(findings: Findings) -> Iterable[Diagnosis]:
    """Some driver packages are held and others not: the next upgrade tears the set apart (lyulyul/shine-cluster 50)."""
    driver = findings.host.driver
    names = [name for name in driver.packages if not name.startswith(_NOT_DRIVER)]
    free = sorted(set(names) - set(driver.held))
    if driver.held and free:
        yield warning(
            "driver_partly_held",
            f"{len(driver.held)} driver packages are held, these are not and can move alone: {', '.join(free)}.",
        )


def runfile(findings: Findings) -> Iterable[Diagnosis]:
    """A driver from NVIDIA's installer and packages do not mix."""
    if findings.host.driver.runfile:
        yield warning(
            "driver_from_runfile", "The driver came from NVIDIA's .run file: packages must not be installed over it."
        )


def nvml_path(findings: Findings) -> Iterable[Diagnosis]:
    """nvidia-smi works and NVML's library cannot be loaded by name: NCCL will abort (NVIDIA/nccl-tests 320)."""
    nvml = findings.sources.nvml
    works = any(reading.cards for reading in findings.sources.smi)
    if works and nvml and nvml.failure and nvml.failure.code == "nvml_missing":
        yield warning(
            "nvml_not_on_loader_path",
            "nvidia-smi works, but libnvidia-ml.so.1 is not on the loader's path; NCCL needs it: run `ldconfig`.",
        )


RULES: tuple[Callable[[Findings], Iterable[Diagnosis]], ...] = (
    library_mismatch,
    module_not_loaded,
    no_answer,
    not_installed,
    wrong_flavour,
    dropped_by_branch,
    reboot_due,
    partly_held,
    runfile,
    nvml_path,
)

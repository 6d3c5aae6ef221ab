"""What is due about a driver, over states of hosts and wishes of their owners."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.driver.choice import choose
from qwenlab.driver.decision import Verdict, after_install, decide, wrong_candidates
from qwenlab.driver.packages import Target
from qwenlab.driver.state import DriverState, Package
from tests.driver.states import (
    B200,
    GTX_780,
    GTX_1080,
    H100,
    RTX_3090,
    RTX_5090,
    V100,
    bare,
    cards,
    debian_packages,
    installed,
    wishes,
    working,
)

CHOICES = [
    # cards, wishes, (branch, flavour)
    ((RTX_3090,), {}, (580, "open")),
    ((RTX_5090,), {}, (580, "open")),
    ((H100,), {"driver_branch": 595}, (595, "open")),
    ((RTX_3090,), {"driver_flavour": "proprietary"}, (580, "proprietary")),
    ((GTX_1080,), {}, (580, "proprietary")),
    ((V100,), {}, (580, "proprietary")),
    ((RTX_3090, GTX_1080), {}, (580, "proprietary")),
    ((RTX_3090, GTX_1080), {"driver_branch": 595, "driver_allow_drop": True}, (595, "open")),
    ((RTX_5090, V100), {"driver_allow_drop": True}, (580, "open")),
    (("ffff",), {}, (580, "open")),  # newer than the table
    ((RTX_3090,), {"driver_version": "595.91.07"}, (595, "open")),
]


@pytest.mark.parametrize(("ids", "wished", "expected"), CHOICES)
def test_branch_and_flavour_follow_from_the_pci_ids(
    ids: tuple[str, ...], wished: dict[str, Any], expected: tuple[int, str]
) -> None:
    choice = choose(cards(*ids), wishes(**wished))
    assert (choice.branch, choice.flavour, choice.reasons) == (*expected, ())


REFUSED_CHOICES = [
    # cards, wishes, words
    ((RTX_5090,), {"driver_flavour": "proprietary"}, "only the open kernel module drives it"),
    ((GTX_1080,), {"driver_flavour": "open"}, "only the proprietary kernel module drives it"),
    ((RTX_5090, V100), {}, "no kernel module drives both"),
    ((V100,), {"driver_branch": 595}, "driver 595 drives none of the cards"),
    ((GTX_780,), {}, "no driver that CUDA 13 runs with supports it"),
    ((RTX_3090, GTX_780), {}, "would drop"),
    ((RTX_3090,), {"driver_branch": 615, "driver_flavour": "proprietary"}, "615 has no proprietary kernel module"),
]


@pytest.mark.parametrize(("ids", "wished", "said"), REFUSED_CHOICES)
def test_a_driver_that_would_not_drive_the_cards_is_refused(
    ids: tuple[str, ...], wished: dict[str, Any], said: str
) -> None:
    (reason,) = choose(cards(*ids), wishes(**wished)).reasons
    assert said in reason


VERDICTS = [
    # state, wishes, verdict
    (bare(), {}, Verdict.INSTALL),
    (working(), {}, Verdict.LEAVE),
    (working(), {"driver_branch": 580}, Verdict.LEAVE),
    (working(), {"driver_branch": 595}, Verdict.INSTALL),
    (working(), {"driver_version": "580.126.09"}, Verdict.LEAVE),
    (working(), {"driver_version": "580.95.05"}, Verdict.INSTALL),
    (working(version="610.57.04"), {}, Verdict.LEAVE),
    (working(version="550.163.01"), {}, Verdict.REFUSE),
    (working(version="550.163.01"), {"driver_branch": 580}, Verdict.INSTALL),
    (working(packages={}, module=None), {}, Verdict.LEAVE),  # by whatever means it came
    (working(container="docker"), {}, Verdict.LEAVE),
    (bare(container="docker"), {}, Verdict.REFUSE),
    (bare(runfile=True), {}, Verdict.REFUSE),
    (bare(os="linuxmint", release="22"), {}, Verdict.REFUSE),
    (bare(os="ubuntu", release="26.04"), {}, Verdict.INSTALL),
    (bare(architecture="riscv64"), {}, Verdict.REFUSE),
    (bare(boot_kernel="7.0.0-3-amd64"), {"driver_branch": 590}, Verdict.REFUSE),
    (bare(boot_kernel="7.0.0-3-amd64"), {"driver_branch": 595}, Verdict.INSTALL),
    (bare(release="12"), {"driver_branch": 610}, Verdict.REFUSE),  # dkms 3.0.10
    (bare(release="13"), {"driver_branch": 610}, Verdict.INSTALL),
    (installed(), {}, Verdict.ACTIVATE),
    (installed(broken=True), {}, Verdict.INSTALL),
    (installed(module=None), {}, Verdict.INSTALL),
    (installed(version="595.91.07"), {}, Verdict.ACTIVATE),  # any branch that does, unless one is asked for
    (installed(version="595.91.07"), {"driver_branch": 580}, Verdict.INSTALL),
    (DriverState(), {}, Verdict.LEAVE),  # no cards
]


@pytest.mark.parametrize(("state", "wished", "verdict"), VERDICTS)
def test_what_is_due(state: DriverState, wished: dict[str, Any], verdict: Verdict) -> None:
    assert decide(state, wishes(**wished)).verdict is verdict


def test_b01_libraries_updated_under_the_loaded_module_need_no_packages() -> None:
    words = ("Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 580.173")
    state = working(
        loaded="580.126.09", smi_code=18, smi=words, packages=debian_packages("580.173.02"), module="580.173.02"
    )
    decision = decide(state, wishes())
    assert decision.verdict is Verdict.ACTIVATE
    assert "580.173.02, the loaded module is 580.126.09" in decision.reasons[0]


def test_b05_secure_boot_without_an_enrolled_key_is_refused_before_any_change() -> None:
    decision = decide(bare(secure_boot=True, mok_enrolled=False), wishes())
    assert decision.verdict is Verdict.REFUSE
    assert "(1) switch Secure Boot off" in decision.reasons[0]
    assert "(2) enrol DKMS's key" in decision.reasons[0]
    assert "mokutil --import /var/lib/dkms/mok.pub" in decision.reasons[0]


def test_b05_secure_boot_with_an_enrolled_key_builds_the_module() -> None:
    assert decide(bare(secure_boot=True, mok_enrolled=True), wishes()).verdict is Verdict.INSTALL


def test_b05_ubuntu_under_secure_boot_takes_canonicals_signed_modules() -> None:
    state = bare(os="ubuntu", release="24.04", secure_boot=True)
    assert decide(state, wishes()).target == Target(580, "open", signed=True)
    assert "Ubuntu signs no modules of driver 610" in decide(state, wishes(driver_branch=610)).reasons[0]


def test_b07_blackwell_with_the_closed_module_gets_the_open_one() -> None:
    state = working(RTX_5090, flavour="proprietary", smi_code=0, smi=("No devices were found",))
    decision = decide(state, wishes())
    assert (decision.verdict, decision.target) == (Verdict.INSTALL, Target(580, "open"))


def test_b08_no_room_for_the_card_is_a_diagnosis_and_no_reinstall() -> None:
    log = ("NVRM: pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space",)
    decision = decide(working(RTX_5090, smi=("No devices were found",), log=log), wishes())
    assert decision.verdict is Verdict.REFUSE
    assert "Above 4G decoding" in decision.reasons[0]
    assert "not reinstalled" in decision.reasons[0]


def test_b10_a_branch_that_drops_a_card_of_the_box_is_refused_unless_allowed() -> None:
    state = working(RTX_3090, GTX_1080, flavour="proprietary")
    decision = decide(state, wishes(driver_branch=595))
    assert decision.verdict is Verdict.REFUSE
    assert (
        "driver 595 would drop NVIDIA GeForce GTX 1080 (0000:02:00.0), whose last branch is 580" in decision.reasons[0]
    )
    assert decide(state, wishes(driver_branch=595, driver_allow_drop=True)).verdict is Verdict.INSTALL


def test_b10_the_allowed_loss_is_the_goal_and_not_a_fault() -> None:
    state = working(RTX_3090, GTX_1080, version="595.91.07", smi=("GPU 0: a card",))
    assert decide(state, wishes(driver_branch=595, driver_allow_drop=True)).verdict is Verdict.LEAVE


def test_b16_a_fabric_manager_of_another_build_is_refused_naming_both() -> None:
    names = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-fabricmanager")
    offered = dict.fromkeys(names, "580.126.09-1") | {"nvidia-fabricmanager": "580.95.05-1"}
    target = Target(580, "open", switched=True)
    (reason,) = wrong_candidates(offered, names, ("nvidia-fabricmanager",), target)
    assert "580.95.05" in reason
    assert "580.126.09" in reason
    assert wrong_candidates(dict.fromkeys(names, "580.126.09-1"), names, ("nvidia-fabricmanager",), target) == []


def test_b19_a_lost_card_is_no_reason_to_reinstall() -> None:
    log = ("NVRM: GPU at PCI:0000:02:00: GPU has fallen off the bus.",)
    decision = decide(working(RTX_3090, RTX_3090, smi=("GPU 0: a card",), log=log), wishes())
    assert decision.verdict is Verdict.REFUSE
    assert "lists 1 of 2 cards" in decision.reasons[0]
    assert "fallen off the bus" in decision.reasons[0]


def test_b25_wsl_gets_no_driver_and_shadowing_packages_are_named() -> None:
    state = bare(wsl=True, packages={"libnvidia-compute-580": Package("580.126.09-0ubuntu1", "ii")})
    decision = decide(state, wishes(driver_branch=595))
    assert decision.verdict is Verdict.LEAVE
    assert "apt-get purge libnvidia-compute-580" in decision.reasons[1]
    assert decide(bare(wsl=True), wishes()).reasons == (decision.reasons[0],)


def test_b26_a_wsl_kernel_without_gpu_support_is_refused() -> None:
    decision = decide(bare(wsl=True, running="5.10.16.3-microsoft-standard-WSL2"), wishes())
    assert decision.verdict is Verdict.REFUSE
    assert "5.10.43" in decision.reasons[0]
    assert decide(bare(wsl=True, running="6.6.87.2-microsoft-standard-WSL2"), wishes()).verdict is Verdict.LEAVE


def test_ubuntus_packages_and_nvidias_are_not_mixed() -> None:
    there = {"nvidia-headless-580-server": Package("580.178.04-0ubuntu1", "ii")}
    decision = decide(bare(os="ubuntu", release="24.04", packages=there), wishes())
    assert decision.verdict is Verdict.REFUSE
    assert "nvidia-headless-580-server" in decision.reasons[0]


def test_nvswitch_brings_the_fabric_manager_and_on_blackwell_the_subnet_manager() -> None:
    def target(state: DriverState) -> tuple[bool, bool]:
        wanted = decide(state, wishes()).target
        assert wanted is not None
        return wanted.switched, wanted.nvlsm

    assert target(bare(H100, H100, nvswitches=4)) == (True, False)
    assert target(bare(B200, B200, nvswitches=2)) == (True, True)
    assert target(bare(H100, H100)) == (False, False)


def test_apts_choice_is_checked_before_the_install() -> None:
    names = ("nvidia-driver-cuda", "nvidia-kernel-open-dkms")
    newest = dict.fromkeys(names, "610.57.04-1")
    assert "would install driver 610.57.04" in wrong_candidates(newest, names, (), Target(580, "open"))[0]
    assert (
        "has no nvidia-kernel-open-dkms" in wrong_candidates({names[0]: "580.1.1-1"}, names, (), Target(580, "open"))[0]
    )
    older = dict.fromkeys(names, "580.126.09-1")
    assert "instead of 580.95.05" in wrong_candidates(older, names, (), Target(580, "open", "580.95.05"))[0]


def test_the_module_is_judged_for_the_kernel_that_will_boot() -> None:
    target = Target(580, "open")
    unbuilt = installed(module=None, boot_kernel="6.12.50-amd64", dkms=("nvidia/580.126.09: added",))
    (reason,) = after_install(unbuilt, target)
    assert "no nvidia module for kernel 6.12.50-amd64" in reason
    assert "nvidia/580.126.09: added" in reason
    assert "make.log" in reason
    assert after_install(installed(), target) == ()
    assert "dkms autoinstall" in after_install(installed(module="580.95.05"), target)[0]


def test_a_kernel_that_boots_next_without_a_module_is_told_while_the_driver_still_works() -> None:
    updated = working(module=None, boot_kernel="6.12.50-amd64")
    decision = decide(updated, wishes())
    assert decision.verdict is Verdict.LEAVE
    assert "kernel 6.12.50-amd64, which boots next, has no nvidia module" in decision.reasons[1]
    rebooted = bare(packages=debian_packages("580.126.09"), running="6.12.50-amd64", boot_kernel="6.12.50-amd64")
    assert decide(rebooted, wishes()).verdict is Verdict.INSTALL
    assert len(decide(working(module=None), wishes()).reasons) == 1  # a driver that came by other means


def test_what_was_installed_is_what_was_asked_for() -> None:
    assert after_install(installed(), Target(580, "open", "580.126.09")) == ()
    for target in (Target(595, "open"), Target(580, "open", "580.95.05")):
        (reason,) = after_install(installed(), target)
        assert "the host has 580.126.09" in reason

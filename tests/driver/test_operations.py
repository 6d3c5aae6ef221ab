"""What the driver's operations would run on a host in a given state, command by command."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.facts.driver_state import AptCandidates, NvidiaDriver
from qwenlab.operations import cuda, driver, driver_packages, power
from qwenlab.remote import fetch_key
from qwenlab.settings import SettingsError
from tests.driver.states import KERNEL, wishes
from tests.operations.fake import commands

SMI_OK = ["smi_code=0", "smi=GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-1)"]
BASE = [
    *("os=debian", "release=13", "arch=x86_64", f"running={KERNEL}", f"boot_kernel={KERNEL}", "boot_id=b-1"),
    "pci=0000:01:00.0 0x2204 0x030000 nouveau",
]
PACKAGES = [
    f"package={name}\t580.126.09-1\tii \tnvidia-graphics-drivers"
    for name in ("libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms")
]
MODULE = ["module=580.126.09", "module_licence=Dual MIT/GPL"]
WORKING = [*BASE, *PACKAGES, *MODULE, "loaded=580.126.09", *SMI_OK]
WAITING = [*BASE, *PACKAGES, *MODULE, "nouveau=yes", "smi_code=9"]
HELD = [f"held={name}" for name in ("libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms")]
STATE = "boot_kernel="  # part of the probe's text
OPERATIONS = (
    driver.check,
    driver_packages.repository,
    driver_packages.pin,
    driver_packages.fetch,
    driver_packages.install,
    driver.boot_files,
    driver_packages.hold,
    driver.activate,
)


def run(
    operation: Any, state: list[str], answers: dict[str, Any] | None = None, **wished: Any
) -> list[tuple[str, str]]:
    """Commands of one operation on a host in `state`."""
    return commands(operation, {STATE: state, **(answers or {})}, settings=wishes(**wished))


@pytest.mark.parametrize("operation", [*OPERATIONS, driver.works], ids=lambda one: one.__name__)
def test_a_driver_that_works_is_left_alone(operation: Any) -> None:
    assert run(operation, WORKING) == []


def test_the_pin_comes_in_a_transaction_of_its_own() -> None:
    ((command, _),) = run(driver_packages.pin, BASE)
    assert "install --yes --no-install-recommends" in command
    assert "nvidia-driver-pinning-580" in command
    assert "nvidia-driver-cuda" not in command


NAMES = f"linux-headers-{KERNEL} nvidia-driver-cuda nvidia-kernel-open-dkms nvidia-persistenced nvidia-modprobe"


def policy(version: str) -> dict[str, Any]:
    """apt offers the driver's packages in this version."""
    return {
        "apt-cache policy": [line for name in NAMES.split()[1:] for line in (f"{name}:", f"  Candidate: {version}")]
    }


def test_all_of_the_driver_is_downloaded_before_anything_is_changed() -> None:
    update, download = run(driver_packages.fetch, BASE, policy("580.126.09-1"))
    assert "apt-get -qq -o DPkg::Lock::Timeout=600 update" in update[0]
    assert f"--download-only {NAMES}" in download[0]
    install, dkms, *end = run(driver_packages.install, BASE)
    assert f"--force-confold {NAMES}" in install[0]
    assert f"dkms autoinstall -k {KERNEL}" in dkms[0]
    assert [kind for kind, _ in end] == ["refused"]  # the host of this test stays as it was, so the install failed


def test_a_held_driver_is_released_for_its_own_install_alone_and_held_again_when_that_fails() -> None:
    host = [*WORKING, *HELD, "package=nvidia-driver-pinning-580\t580-1\thi \t", "held=nvidia-driver-pinning-580"]
    host += ["held=linux-image-amd64", "package=linux-image-amd64\t6.12.48-1\thi \tlinux-signed"]
    ((pin, _),) = run(driver_packages.pin, host, driver_branch=595)
    assert pin.startswith("apt-mark unhold nvidia-driver-pinning-580 >/dev/null && sh -c")
    assert pin.endswith("|| { apt-mark hold nvidia-driver-pinning-580 >/dev/null; exit 1; }")
    theirs = "libcuda1 libnvidia-ml1 nvidia-driver-cuda nvidia-driver-pinning-580 nvidia-kernel-open-dkms"
    _, (fetch, _) = run(driver_packages.fetch, host, policy("595.91.07-1"), driver_branch=595)
    assert fetch.startswith(f"apt-mark unhold {theirs} >/dev/null && sh -c")
    assert fetch.endswith(f"; code=$?; apt-mark hold {theirs} >/dev/null; exit $code")
    install, *_ = run(driver_packages.install, host, driver_branch=595)
    assert install[0].startswith(f"apt-mark unhold {theirs} >/dev/null && sh -c")
    assert install[0].endswith(f"|| {{ apt-mark hold {theirs} >/dev/null; exit 1; }}")
    assert "linux-headers-amd64" not in install[0]  # its kernel is held: it does not move


@pytest.mark.parametrize(
    ("wished", "allowed"),
    [
        ({"driver_branch": 595}, False),
        ({"driver_branch": 580}, True),
        ({"driver_version": "595.58.03"}, True),
    ],
)
def test_only_a_wish_for_something_older_lets_apt_downgrade(wished: dict[str, Any], allowed: bool) -> None:
    host = [line.replace("580.126.09", "590.48.01") for line in WORKING]
    assert ("--allow-downgrades" in run(driver_packages.install, host, **wished)[0][0]) is allowed


def test_apt_offering_another_branch_ends_the_run_before_the_install() -> None:
    _, (kind, reason) = run(driver_packages.fetch, BASE, policy("610.57.04-1"))
    assert kind == "refused"
    assert "apt would install driver 610.57.04" in reason


def test_a_reboot_that_nobody_allowed_is_asked_for() -> None:
    ((kind, reason),) = run(driver.activate, WAITING)
    assert kind == "refused"
    assert "qwen_allow_reboot = True" in reason


def test_the_machine_that_pyinfra_runs_on_is_never_rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qwenlab.operations.driver.runs_here", lambda boot_id: boot_id == "b-1")
    ((kind, reason),) = run(driver.activate, WAITING, allow_reboot=True)
    assert kind == "refused"
    assert "never rebooted" in reason


def test_b04_one_reboot_for_one_state_and_then_a_diagnosis() -> None:
    files = [
        f"module_file=/lib/modules/{KERNEL}/updates/dkms/nvidia.ko",
        f"module_file=/lib/modules/{KERNEL}/kernel/nvidia.ko",
    ]
    again = [*WAITING, *files, f"rebooted_for=580.126.09 on {KERNEL}"]
    ((kind, reason),) = run(driver.activate, again, allow_reboot=True)
    assert kind == "refused"
    assert "updates/dkms/nvidia.ko" in reason
    assert "kernel/nvidia.ko" in reason
    assert "nouveau still holds the cards" in reason


def test_novas_hold_is_told_as_nouveaus() -> None:
    """Ubuntu 26.04's first kernels bind nova_core, nouveau's successor, to cards up to Ada (beclab/Olares 3963)."""
    held = [line.replace("nouveau", "NovaCore") for line in [*BASE, *PACKAGES, *MODULE, "smi_code=9"]]
    ((kind, reason),) = run(driver.activate, held)
    assert kind == "refused"
    assert "nova_core holds the cards" in reason


def test_b02_a_partial_hold_is_completed_and_a_whole_one_left() -> None:
    assert run(driver_packages.hold, [*WORKING, HELD[2]]) == [
        ("apt-mark hold libcuda1 libnvidia-ml1 nvidia-kernel-open-dkms", "")
    ]
    assert run(driver_packages.hold, [*WORKING, *HELD]) == []


def test_b100_what_is_due_is_asked_at_each_operations_turn() -> None:
    """The same operation on the same host: an install on the bare one, none on the one that the reboot has mended."""
    assert run(driver_packages.pin, BASE) != []
    assert run(driver_packages.pin, WORKING) == []


def test_without_nouveau_the_module_is_loaded_first() -> None:
    loadable = [*BASE, *PACKAGES, *MODULE, "smi_code=9"]
    (load, _), (kind, _) = run(driver.activate, loadable)
    assert load.startswith("modprobe nvidia")
    assert kind == "refused"  # the host of this test answers as before, so only a reboot is left


POWER = "GPU-1, NVIDIA GeForce RTX 3090, {now}, 350.00, 100.00, 366.00"
ANSWER = {"power.default_limit": [POWER.format(now="350.00")]}


@pytest.mark.parametrize(
    ("wish", "watts"),
    [(250.0, "250"), (20.0, "100"), (999.0, "366"), ({"RTX 3090": 280.0}, "280"), ("advised", "290")],
)
def test_b92_a_limit_is_set_by_uuid_within_the_cards_range(wish: Any, watts: str) -> None:
    found = commands(power.limit, ANSWER, settings=wishes(power_limit_w=wish))
    assert f"ExecStart=/usr/bin/nvidia-smi -i GPU-1 -pl {watts}\n" in found[0][1]
    assert "After=nvidia-persistenced.service" in found[0][1]
    assert [command.split()[:2] for command, _ in found[1:]] == [
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable"],
        ["systemctl", "restart"],
    ]


def test_no_limit_is_set_without_a_wish_or_for_another_model() -> None:
    assert commands(power.limit, ANSWER, settings=wishes()) == []
    assert commands(power.limit, ANSWER, settings=wishes(power_limit_w={"RTX 3090 Ti": 200.0})) == []


@pytest.mark.parametrize("value", ["[N/A]", "[Not Supported]", "N/A"])
def test_a_card_without_a_limit_is_left_alone(value: str) -> None:
    answer = {"power.default_limit": [f"GPU-1, NVIDIA GeForce RTX 4090 Laptop GPU, {value}, {value}, {value}, {value}"]}
    assert commands(power.limit, answer, settings=wishes(power_limit_w=100.0)) == []


PYTHON = {"releases/*/release.json": ["python=/usr/bin/python3 3.13"]}


@pytest.mark.parametrize(
    ("source", "home"),
    [
        ("pip", "/opt/qwen/current/venv/lib/python3.13/site-packages/nvidia/cu13"),
        ("apt", "/usr/local/cuda-13.0"),
    ],
)
def test_b35_b37_the_units_find_the_engines_compiler_first_and_no_other(source: str, home: str) -> None:
    _, (_, text), reload = commands(cuda.environment, PYTHON, settings=wishes(cuda_from=source))
    assert f"Environment=CUDA_HOME={home} CUDA_PATH={home}\n" in text
    assert f"Environment=PATH={home}/bin:/opt/qwen/current/venv/bin:/usr/local/sbin:" in text
    assert "/usr/local/cuda/" not in text
    assert reload[0] == "systemctl daemon-reload"


def test_candidates_are_read_and_packages_without_one_left_out() -> None:
    lines = ["a:", "  Installed: (none)", "  Candidate: 1:2-3", "b:", "  Candidate: (none)"]
    assert AptCandidates().process(lines) == {"a": "1:2-3"}


def test_odd_answers_of_the_probe_are_passed_over() -> None:
    state = NvidiaDriver().process(["Welcome to rack1!", "smi_code=", "pci=0000:01:00.0", "package=", *WORKING])
    assert state.works
    assert state.cards[0].device_id == "2204"


REFUSED_SETTINGS = [
    ({"driver_branch": 599}, "driver branch 599 is not known"),
    ({"driver_branch": 580, "driver_version": "595.91.07"}, "contradict each other"),
    ({"driver_branch": 535}, "greater than or equal to 580"),
    ({"driver_version": "newest"}, "driver_version"),
    ({"driver_key_fingerprint": "3bf863cc"}, "driver_key_fingerprint"),
]


@pytest.mark.parametrize(("wished", "said"), REFUSED_SETTINGS)
def test_settings_that_name_no_driver_are_refused(wished: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        wishes(**wished)


def test_a_key_file_with_a_second_key_is_not_the_expected_one() -> None:
    """apt trusts every key of a keyring."""
    body = b"\x04" + bytes(40)
    packet = b"\xc6" + bytes([len(body)]) + body
    (one,) = fetch_key.fingerprints(packet)
    assert len(one) == 40
    assert len(fetch_key.fingerprints(packet + packet)) == 2
    with pytest.raises(ValueError, match="not an OpenPGP key"):
        fetch_key.fingerprints(b"<html>")
    with pytest.raises(ValueError, match="cut off"):
        fetch_key.fingerprints(packet[:-1])

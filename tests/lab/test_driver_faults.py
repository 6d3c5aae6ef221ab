"""What goes wrong with drivers, on a real host: prevented, repaired, or refused with the right words.

Each test starts from a bare host again: same machine, cards anew, no packages of NVIDIA's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qwenlab.driver.packages import belongs
from tests.lab.apt_repository import Fault, Variant
from tests.lab.drivers import Rack, rack
from tests.sim import inventory

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PURGE = r"""
systemctl stop holder 2>/dev/null
apt-mark showhold | xargs -r apt-mark unhold
dpkg-query -W -f '${Package}\n' '*nvidia*' 'libcuda*' 'cuda-*' 'libcurand*' 'libcublas*' nvlsm 2>/dev/null |
    xargs -r dpkg --purge --force-all
rm -rf /etc/apt/sources.list.d/*nvidia* /etc/apt/keyrings/qwenlab* /etc/apt/apt.conf.d/52qwenlab-nvidia
rm -rf /etc/qwen/driver-reboot /etc/modprobe.d/qwenlab-* /var/lib/dkms/nvidia /etc/apt/preferences.d/*nvidia*
apt-get clean
ldconfig
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """One host for the file."""
    with rack(tmp_path_factory.mktemp("faults")) as made:
        made.stage.prepare(inventory.load("1x3090"), nouveau=False)
        yield made


@pytest.fixture
def bare(shared: Rack) -> Rack:
    """The host with a card that nothing holds, and no driver."""
    shared.repository.set_faults()
    shared.host.ssh_run(PURGE)
    shared.stage.gpus.install(inventory.load("1x3090"), driver=None, nouveau=False)
    assert shared.say("ls -d /sys/module/nvidia").startswith("ls: cannot access")
    return shared


def test_a_host_whose_driver_works_is_untouched(bare: Rack) -> None:
    bare.stage.gpus.install(inventory.load("1x3090"))
    before = bare.say("dpkg-query -W '*nvidia*' 'libcuda*' 2>/dev/null; ls /etc/apt/sources.list.d /etc/apt/apt.conf.d")
    first = bare.run(qwen_allow_reboot=True)
    assert first.code == 0, first.text
    assert not [name for name in first.changed if not name.startswith("Host base")]
    assert "apt-get -qq" not in bare.settled(qwen_allow_reboot=True).text
    after = bare.say("dpkg-query -W '*nvidia*' 'libcuda*' 2>/dev/null; ls /etc/apt/sources.list.d /etc/apt/apt.conf.d")
    assert after.replace("90qwenlab\n", "") == before.replace("90qwenlab\n", "")


def test_b14_a_lock_held_longer_than_allowed_is_reported_with_its_holder(bare: Rack) -> None:
    pid = bare.hold_lock(300)
    run = bare.run(qwen_apt_lock_timeout_s=1)
    bare.say("systemctl stop holder")
    assert run.code == 1
    assert f"It is held by process {pid} (python3)" in run.text
    assert "Do not delete the lock" in run.text


def test_a_repository_that_goes_away_leaves_dpkg_consistent_and_the_next_run_completes(bare: Rack) -> None:
    """And nothing is rebooted: without nouveau the module can be loaded."""
    boot = bare.host.boot_id()
    bare.repository.set_faults(Fault(paths="*nvidia-kernel-open-dkms*", reset_at=200))
    broken = bare.run()
    assert broken.code == 1
    assert bare.say("dpkg --audit") == ""
    assert bare.say("dpkg-query -W -f '${db:Status-Abbrev}' nvidia-driver-cuda libcuda1").count("ii") == 0
    bare.repository.set_faults()
    again = bare.run()
    assert again.code == 0, again.text
    assert "GPU 0" in bare.say("nvidia-smi -L")
    assert bare.host.boot_id() == boot


def test_b04_a_mismatch_that_survives_the_reboot_ends_in_a_diagnosis_and_not_in_a_loop(bare: Rack) -> None:
    """An initramfs that holds an older module: whatever is installed, the boot loads that."""
    bare.say("echo 580.95.05 open > /etc/qwen-sim/boot-module")
    bare.stage.gpus.load_module("580.95.05")
    first = bare.run(qwen_allow_reboot=True)
    assert first.code == 1
    assert "rebooted once for this driver, and it still does not work" in first.text
    assert "580.95.05 was loaded and 580.126.09 lies on disk: an initramfs holds the old one" in first.text
    boot = bare.host.boot_id()
    second = bare.run(qwen_allow_reboot=True)
    assert second.code == 1
    assert "rebooted once for this driver" in second.text
    assert bare.host.boot_id() == boot


def test_b01_a_mismatch_is_cleared_by_one_reboot_and_no_install(bare: Rack) -> None:
    assert bare.run().code == 0
    bare.stage.gpus.load_module("580.95.05")
    stopped = bare.run()
    assert stopped.code == 1
    assert "the driver was updated while it ran" in stopped.text
    cleared = bare.run(qwen_allow_reboot=True)
    assert cleared.code == 0, cleared.text
    assert "install --yes" not in cleared.text
    assert "GPU 0" in bare.say("nvidia-smi -L")


def test_b05_secure_boot_is_refused_before_any_change(bare: Rack) -> None:
    bare.stage.gpus.install(inventory.load("1x3090"), driver=None, secure_boot=True)
    run, written = bare.written(qwen_allow_reboot=True)
    assert run.code == 1
    assert "mokutil --import /var/lib/dkms/mok.pub" in run.text
    assert written == []


def test_b07_a_blackwell_card_gets_the_open_module_in_place_of_the_closed_one(bare: Rack) -> None:
    assert bare.run(qwen_driver_flavour="proprietary").code == 0
    bare.stage.gpus.install(inventory.load("1x5090"), driver=None, nouveau=False)
    run = bare.run(qwen_allow_reboot=True)
    assert run.code == 0, run.text
    assert "RTX 5090" in bare.say("nvidia-smi -L")
    assert bare.say("modinfo -F license nvidia").strip() == "Dual MIT/GPL"


def test_b10_a_branch_that_drops_a_card_is_refused(bare: Rack) -> None:
    bare.stage.gpus.install(inventory.load("3090-gtx1080"))
    run, written = bare.written(qwen_driver_branch=595)
    assert run.code == 1
    assert "would drop NVIDIA GeForce GTX 1080" in run.text
    assert written == []


REPOSITORIES = [
    (Variant.SHA1_KEY, "apt_key_sha1"),
    (Variant.EXPIRED_KEY, "signing key has expired"),
    (Variant.UNSIGNED, "carries no signature"),
]


@pytest.mark.parametrize(("variant", "said"), REPOSITORIES, ids=[str(variant) for variant, _ in REPOSITORIES])
def test_b11_a_repository_that_cannot_be_trusted_is_refused_with_the_reason(
    bare: Rack, variant: Variant, said: str
) -> None:
    run = bare.run(variant=variant)
    assert run.code == 1
    assert said in run.text
    assert "no packages found" in bare.say("dpkg-query -W nvidia-driver-cuda")


def test_a_mirror_with_another_key_is_refused_before_its_key_is_trusted(bare: Rack) -> None:
    run = bare.run(qwen_driver_key_fingerprint="02182E60104FCDC26EAE1B8597A5D4CB8793F200")
    assert run.code == 1
    assert "expected is 02182E60104FCDC26EAE1B8597A5D4CB8793F200" in run.text
    assert bare.say("ls /etc/apt/keyrings | grep qwenlab") == ""


def test_b11_a_source_for_another_release_is_switched_off(bare: Rack) -> None:
    old = "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"
    bare.say(f"echo 'deb {bare.repository.url()}/debian12/x86_64/ /' > {old}")
    run = bare.run()
    assert run.code == 0, run.text
    assert bare.say(f"ls {old}*").split() == [f"{old}.disabled"]
    bare.say(f"rm {old}.disabled")


def test_a_module_that_does_not_build_is_told_and_an_older_version_repairs_it(bare: Rack) -> None:
    failed = bare.run(variant=Variant.BROKEN_MODULE)
    assert failed.code == 1
    assert "make.log" in failed.text
    repaired = bare.run(variant=Variant.BROKEN_MODULE, qwen_driver_version="580.95.05")
    assert repaired.code == 0, repaired.text
    assert bare.say("cat /sys/module/nvidia/version").strip() == "580.95.05"
    assert bare.say("dpkg --audit") == ""


def test_b16_a_fabric_manager_that_lags_behind_is_refused_before_the_install(bare: Rack) -> None:
    bare.stage.gpus.install(inventory.load("8xh100"), driver=None, nouveau=False)
    run = bare.run(variant=Variant.LAGGING_FABRIC_MANAGER)
    assert run.code == 1
    assert "the fabric manager would be 580.95.05 and the driver 580.126.09" in run.text
    assert "ii" not in bare.say("dpkg-query -W -f '${db:Status-Abbrev}' nvidia-driver-cuda")
    lockstep = bare.run(variant=Variant.LAGGING_FABRIC_MANAGER, qwen_driver_version="580.95.05")
    assert lockstep.code == 0, lockstep.text
    assert bare.say("systemctl is-active nvidia-fabricmanager").strip() == "active"
    assert "nvidia-fabricmanager" in bare.say("apt-mark showhold")


def test_b25_wsl_gets_no_driver(bare: Rack) -> None:
    bare.stage.gpus.install(inventory.load("wsl2-4090"))
    run = bare.run(qwen_driver_branch=595)
    assert run.code == 0, run.text
    assert "the Windows driver serves the cards" in run.text
    assert not [name for name in run.changed if name.startswith("Driver")]


def test_b34_b38_the_toolkit_is_the_engines_minor_with_curand_whatever_else_is_there(bare: Rack) -> None:
    bare.stage.gpus.install(inventory.load("1x3090"))
    run = bare.run(qwen_cuda_from="apt")
    assert run.code == 0, run.text
    assert "release 13.0" in bare.say("/usr/local/cuda-13.0/bin/nvcc --version")
    bare.say("DEBIAN_FRONTEND=noninteractive apt-get -qq -y install cuda-toolkit-13-1")
    assert bare.say("readlink -f /usr/local/cuda").strip() == "/usr/local/cuda-13.1"
    bare.settled(qwen_cuda_from="apt")
    bare.say("rm /usr/local/cuda-13.0/targets/x86_64-linux/include/curand_kernel.h")
    missing = bare.run(qwen_cuda_from="apt")
    assert "perf_degraded:curand" in missing.text
    listed = "dpkg-query -W -f '${db:Status-Abbrev}${Package}\\n' 'cuda-*' '*nvidia*' | sed -n 's/^ii *//p'"
    installed = bare.say(listed).split()
    assert "cuda-toolkit-13-0" in installed
    assert not [name for name in installed if belongs(name)]

"""Known failures of GPU hosts: what the detector must see in each. The names are
those of the list in docs/inventory.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.peer_verdicts import PeerVerdict, with_verdicts
from qwenlab.host_inventory import Ancestor, HostInventory, ParseState, Severity
from tests.facts.hosts import H200_PAIR, codes, corpus, host, run_script, text_of
from tests.facts.test_pci import ROOT, card
from tests.sim import inventory as sim
from tests.sim.local import SimRoot

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n"
PROC_580_126 = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  (root@build)\n"
    "GCC version:  gcc version 13.3.0\n"
)
PACKAGES = (
    "libnvidia-compute-580\t580.173.02-0ubuntu0.24.04.1\tinstall ok installed\tnvidia-graphics-drivers-580\n"
    "nvidia-driver-580-open\t580.173.02-0ubuntu0.24.04.1\tinstall ok installed\tnvidia-graphics-drivers-580\n"
    "libnvidia-common-580\t580.173.02-0ubuntu0.24.04.1\tinstall ok installed\tnvidia-graphics-drivers-580\n"
)
BOX = (H200_PAIR / "smi.txt").read_text()
XML = (H200_PAIR / "smi.xml").read_text()
TOPO = (H200_PAIR / "topo.txt").read_text()
BLACKWELL = card("0000:01:00.0", ROOT, device="0x2b85")


def test_B01_library_updated_under_the_loaded_module() -> None:
    inventory = host(smi_table=MISMATCH, smi_xml=MISMATCH, driver_version=PROC_580_126, packages=PACKAGES)
    assert inventory.driver.loaded == "580.126.09"
    assert inventory.driver.installed == "580.173.02"
    said = text_of(inventory, "driver_library_mismatch")
    assert "580.126.09" in said
    assert "580.173" in said
    assert "Reboot; do not reinstall" in said
    assert inventory.parse is ParseState.ERROR


def test_B02_hold_that_covers_only_some_packages() -> None:
    inventory = host(packages=PACKAGES, holds="nvidia-driver-580-open\nlibnvidia-compute-580\n")
    assert "libnvidia-common-580" in text_of(inventory, "driver_partly_held")
    whole = host(packages=PACKAGES, holds="nvidia-driver-580-open\nlibnvidia-compute-580\nlibnvidia-common-580\n")
    assert "driver_partly_held" not in codes(whole)


def test_B04_mismatch_that_survives_a_reboot_names_both_modules() -> None:
    files = "/lib/modules/6.8.0/updates/dkms/nvidia.ko.zst\n/lib/modules/6.8.0/kernel/drivers/video/nvidia.ko\n"
    said = text_of(host(smi_xml=MISMATCH, driver_version=PROC_580_126, module_files=files), "driver_library_mismatch")
    assert all(path in said for path in files.split())
    assert "dkms autoinstall" in said
    assert "update-initramfs" in said
    assert "reboot once more" in said


def test_B05_secure_boot_is_told_before_any_package_changes() -> None:
    inventory = host(pci=BLACKWELL, secure_boot="efivar 1\n")
    assert inventory.secure_boot is True
    assert "pre-signed" in text_of(inventory, "secure_boot")
    refused = host(
        smi_xml="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        kernel="modprobe: ERROR: could not insert 'nvidia': Key was rejected by service\n",
        secure_boot="efivar 1\n",
    )
    assert {"module_not_loaded", "module_key_rejected"} <= codes(refused)
    assert "enrolled key" in text_of(refused, "module_not_loaded")


def test_B07_blackwell_with_the_closed_module() -> None:
    closed = PROC_580_126.replace("Open Kernel Module", "x86_64 Kernel Module")
    inventory = host(pci=BLACKWELL, smi_xml="No devices were found\n", driver_version=closed)
    assert inventory.driver.open_module is False
    assert "open kernel module only" in text_of(inventory, "needs_open_module")
    assert [gpu.usable for gpu in inventory.gpus] == [False]
    fresh = host(pci=BLACKWELL)
    assert "needs_open_module" not in codes(fresh)


def test_B08_no_address_space_for_bar1() -> None:
    kernel = "pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space\n"
    kernel += "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x24:0xffff:1608)\n"
    inventory = host(pci=BLACKWELL, smi_xml="No devices were found\n", driver_version=PROC_580_126, kernel=kernel)
    said = text_of(inventory, "bar_space")
    assert "Above 4G decoding" in said
    assert "reinstalling the driver does not help" in said


def test_B10_a_newer_branch_would_drop_the_older_card() -> None:
    both = card("0000:01:00.0", ROOT) + card("0000:02:00.0", ROOT, device="0x1b80")
    planned = host(pci=both)
    assert "GTX 1080" in text_of(planned, "driver_branch_capped")
    dropped = host(pci=both, driver_version=PROC_580_126.replace("580.126.09", "595.91.07"))
    assert "GTX 1080" in text_of(dropped, "driver_drops_card")
    assert [gpu.usable for gpu in dropped.gpus] == [True, False]


def test_B17_nvswitch_server_that_looks_like_a_pcie_box() -> None:
    inventory = corpus("82")
    assert not inventory.usable_gpus
    assert "nvidia-fabricmanager" in text_of(inventory, "fabricmanager_not_running")
    assert "fabricmanager_not_running" not in codes(corpus("58")), "SXM2 modules on adapters need no switch"
    unrouted = host(smi_xml=XML.replace("<state>Completed</state>", "<state>In Progress</state>"), topo=TOPO)
    assert "fabricmanager_not_running" in codes(unrouted), "links that are there but that nobody routes"
    assert "fabricmanager_not_running" not in codes(host(smi_xml=XML, topo=TOPO))


@pytest.mark.parametrize(
    ("switched", "services", "state"),
    [
        (True, "nvidia-fabricmanager active", "running"),
        (True, "nvidia-fabricmanager failed", "stopped"),
        (True, "nvidia-fabricmanager absent", "absent"),
        (False, "nvidia-fabricmanager active", "running"),
        (False, "nvidia-fabricmanager absent", None),
        (False, "", None),
    ],
)
def test_the_fabric_manager_s_state_is_told_where_it_is_wanted_or_there(
    switched: bool, services: str, state: str | None
) -> None:
    unrouted = XML.replace("<state>Completed</state>", "<state>In Progress</state>") if switched else XML
    assert host(smi_xml=unrouted, topo=TOPO, services=services).fabric_manager == state


def test_B19_a_card_off_the_bus_is_listed_and_not_counted() -> None:
    inventory = corpus("68")
    lost = next(gpu for gpu in inventory.gpus if not gpu.usable)
    assert lost.pci_bus_id == "0000:21:00.0"
    assert next(item for item in inventory.diagnoses if item.gpu == "0000:21:00.0").severity is Severity.ERROR
    assert [gpu.uuid for gpu in inventory.usable_gpus] == ["GPU-2b9b2310-5782-5cec-8b3a-982ba39e98c5"]


def test_B20_the_card_that_nvidia_smi_cannot_open_is_left_out_by_uuid() -> None:
    inventory = corpus("70")
    assert len(inventory.usable_gpus) == 3
    assert "GPU-d88a8b2a-47bc-56a1-8dee-68f9d2d97d61" not in {gpu.uuid for gpu in inventory.usable_gpus}
    assert "reboot" in text_of(inventory, "gpu_fault")


def test_B22_link_errors_are_seen() -> None:
    inventory = host(smi_xml=XML.replace("<replay_counter>0<", "<replay_counter>1753<", 1))
    assert inventory.gpus[0].pcie.replays == 1753
    assert "Gen4" in text_of(inventory, "pcie_replays")


def test_B23_peer_access_is_what_the_matrix_says_not_the_version() -> None:
    inventory = corpus("46")
    assert (inventory.pairs[0].peer_read, inventory.pairs[0].peer_refusal) == (False, "GNS")
    assert "no peer access" in text_of(inventory, "peer_access_not_granted")
    patched = corpus("31")
    assert all(pair.peer_read for pair in patched.pairs)
    assert "patched module" in text_of(patched, "peer_access_untested")


def test_B25_a_linux_driver_inside_wsl_is_offered_for_removal() -> None:
    inventory = host(uname="Linux 5.15.167.4-microsoft-standard-WSL2 x86_64\n", devices="/dev/dxg\n", packages=PACKAGES)
    assert inventory.wsl2
    said = text_of(inventory, "wsl_linux_driver_installed")
    assert "apt-get remove libnvidia-compute-580 nvidia-driver-580-open" in said


def test_B26_the_wsl_kernel_is_too_old() -> None:
    old = host(uname="Linux 5.10.16.3-microsoft-standard-WSL2 x86_64\n")
    assert "5.10.43" in text_of(old, "wsl_kernel_too_old")
    assert "wsl_kernel_too_old" not in codes(host(uname="Linux 5.15.167.4-microsoft-standard-WSL2 x86_64\n"))


def test_B31_wsl_grants_no_peer_access() -> None:
    inventory = corpus("74")
    assert "no peer access" in text_of(inventory, "wsl2")
    assert len(inventory.usable_gpus) == 2


def test_B32_memory_of_the_guest_is_measured() -> None:
    inventory = host(meminfo="MemTotal:       16252928 kB\nMemFree: 1 kB\nMemAvailable:   14680064 kB\n")
    assert (inventory.ram_total_gib, inventory.ram_available_gib) == (15.5, 14.0)


def test_B35_toolkits_and_compiler_are_reported_with_the_cards_capability() -> None:
    nvcc = "/usr/local/cuda/bin/nvcc\nCuda compilation tools, release 12.8, V12.8.93\n"
    inventory = host(pci=BLACKWELL, nvcc=nvcc, toolkits="/usr/local/cuda-12.8\n/usr/local/cuda-13.0\n")
    assert (inventory.nvcc, inventory.cuda_toolkits) == ("12.8.93", ("12.8", "13.0"))
    assert inventory.gpus[0].compute_capability == (12, 0)


def test_B40_a_torch_build_without_the_cards_architecture() -> None:
    inventory = corpus("76")
    left_out = [gpu.name for gpu in inventory.gpus if not gpu.usable]
    assert left_out == ["NVIDIA GeForce RTX 5090"]
    assert "sm_120" in text_of(inventory, "runtime_lacks_architecture")


@pytest.mark.parametrize(
    ("captures", "code"),
    [
        ({"glibc": "glibc 2.28\n"}, "glibc_too_old"),
        ({"uname": "Linux 4.4.169-generic x86_64\n"}, "kernel_too_old"),
    ],
)
def test_B46_too_old_a_base(captures: dict[str, str], code: str) -> None:
    assert code in codes(host(**captures))
    assert not {"glibc_too_old", "kernel_too_old"} & codes(host(glibc="glibc 2.39\n", uname="Linux 6.8.0-45 x86_64\n"))


def test_B47_nvml_not_on_the_loaders_path() -> None:
    nvml = '{"init": {"error": "NVMLError_LibraryNotFound", "code": 12}}'
    inventory = host(smi_xml=XML, nvml=nvml)
    assert "ldconfig" in text_of(inventory, "nvml_not_on_loader_path")
    assert len(inventory.usable_gpus) == 2


@pytest.mark.parametrize("number", ["79", "80"])
def test_B59_cards_are_identified_by_uuid_in_pci_order(number: str) -> None:
    """nvidia-smi's order, whatever CUDA's fastest-first order would be."""
    gpus = corpus(number).gpus
    assert [gpu.index for gpu in gpus] == [0, 1]
    assert all((gpu.uuid or "").startswith("GPU-") for gpu in gpus)
    names = {"79": ["GTX 1660 SUPER", "RTX 3090"], "80": ["RTX 5090", "RTX PRO 6000"]}[number]
    assert all(part in (gpu.name or "") for part, gpu in zip(names, gpus, strict=True))


def test_B59_sysfs_order_is_bus_order_even_if_captured_otherwise() -> None:
    inventory = host(pci=card("0000:81:00.0", "pci0000:80") + card("0000:01:00.0", ROOT))
    assert [gpu.pci_bus_id for gpu in inventory.gpus] == ["0000:01:00.0", "0000:81:00.0"]


def test_B61_a_desktop_on_the_serving_card_is_measured() -> None:
    first, second = corpus("56").gpus
    assert (first.display_active, second.display_active) == (True, False)
    assert (first.memory_used_mib, second.memory_used_mib) == (22424, 22087)


def test_B64_unified_memory_has_no_size_of_its_own() -> None:
    box = BOX.replace("0MiB / 143771MiB", "Not Supported    ").replace("NVIDIA H200 ", "NVIDIA GB10 ")
    inventory = host(smi_table=box)
    assert inventory.parse is ParseState.OK
    assert [(gpu.name, gpu.memory_total_mib, gpu.memory_unified) for gpu in inventory.gpus] == [
        ("NVIDIA GB10", None, True)
    ] * 2
    xml = XML.replace("<total>143771 MiB</total>", "<total>Not Supported</total>")
    assert all(gpu.memory_total_mib is None and gpu.usable for gpu in host(smi_xml=xml.replace("H200", "GB10")).gpus)


def test_B65_a_banner_nobody_knows_is_not_a_host_without_cards() -> None:
    assert corpus("71").driver.cuda == "13.3"
    inventory = host(smi_table=BOX.replace("CUDA Version: 13.0", "CUDA Version: ERR!"))
    assert inventory.driver.cuda is None
    assert len(inventory.usable_gpus) == 2


def peers(inventory: HostInventory, verdict: str, gb_s: float | None = None) -> HostInventory:
    a, b = (gpu.uuid or "" for gpu in inventory.gpus)
    return with_verdicts(inventory, [PeerVerdict(a, b, verdict, "why", gb_s)])


def test_B67_the_matrix_says_ok_and_the_test_decides() -> None:
    inventory = corpus("34")
    assert inventory.pairs[0].measured_peer_ok is None
    hanging, good = peers(inventory, "hang"), peers(inventory, "ok", 56.5)
    assert hanging.pairs[0].measured_peer_ok is False
    assert "It stays off" in text_of(hanging, "peer_test_hang")
    assert (good.pairs[0].measured_peer_ok, good.pairs[0].measured_gb_s) == (True, 56.5)


def test_B68_the_same_label_on_two_boxes_promises_nothing() -> None:
    for number in ("34", "35"):
        (pair,) = corpus(number).pairs
        assert (pair.ancestor, pair.peer_read, pair.measured_peer_ok) == (Ancestor.NODE, None, None)


def test_B74_the_fingerprint_changes_with_the_firmware() -> None:
    before = host(smi_xml=XML, bios="B850 board 1.0 01/02/2026\n")
    again = host(smi_xml=XML, bios="B850 board 1.0 01/02/2026\n")
    after = host(smi_xml=XML, bios="B850 board 1.1 05/06/2026\n")
    assert before.fingerprint == again.fingerprint != after.fingerprint


def test_B76_kernel_4_4_is_warned_about() -> None:
    assert "NCCL_CUMEM_ENABLE=0" in text_of(corpus("77"), "kernel_too_old")


def test_B77_programs_on_the_card_are_counted() -> None:
    process = "<process_info><pid>42</pid><type>C</type><used_memory>20000 MiB</used_memory></process_info>"
    xml = XML.replace("<processes>", f"<processes>{process}", 1).replace(
        "<used>0 MiB</used>", "<used>20480 MiB</used>", 1
    )
    inventory = host(smi_xml=xml)
    assert (inventory.gpus[0].processes, inventory.gpus[0].memory_used_mib) == (1, 20480)
    assert "1 programs hold 20480 MiB" in text_of(inventory, "memory_in_use")


def test_B83_small_shared_memory_between_several_cards() -> None:
    df = "Filesystem Type 1024-blocks Used Available Capacity Mounted on\ntmpfs tmpfs 65536 0 65536 0% /dev/shm\n"
    assert "shm_small" in codes(host(smi_xml=XML, df=df))
    assert "shm_small" not in codes(host(smi_xml=XML, df=df.replace("65536", "131924204")))


def test_B92_power_caps_and_their_range_are_facts() -> None:
    power = host(smi_xml=XML).gpus[0].power
    assert (power.limit_w, power.default_w, power.min_w, power.max_w) == (700.0, 700.0, 200.0, 700.0)
    assert "290 W, 350 W" in text_of(corpus("86"), "unequal_power_limits")


def test_B101_without_python_everything_but_nvml_still_comes(tmp_path: Path) -> None:
    root = SimRoot.create(tmp_path / "m", sim.load("2x3090-nvlink"))
    recording = run_script(root, without=("python3",))
    assert not recording.text("nvml")
    inventory = build_inventory(recording)
    assert inventory.parse is ParseState.OK
    assert len(inventory.usable_gpus) == 2
    assert inventory.pairs[0].nvlink_lanes == 4

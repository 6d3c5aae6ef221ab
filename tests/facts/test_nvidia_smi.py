"""nvidia-smi's box, list and XML report, and its words where there is no inventory."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.published import parse_published
from qwenlab.facts.readings import PROHIBITED, Lost, ParseError, Reading
from qwenlab.facts.smi_query import parse_query
from qwenlab.facts.smi_report import parse_report
from qwenlab.facts.smi_table import parse_list, parse_table
from qwenlab.facts.smi_text import parse_text
from qwenlab.facts.smi_values import failure, missing, number, switch, whole
from qwenlab.facts.smi_xml import parse_xml
from tests.facts.hosts import H200_PAIR, host, text_of

XML = (H200_PAIR / "smi.xml").read_text()
BOX = (H200_PAIR / "smi.txt").read_text()
REPORT = """
==============NVSMI LOG==============

Timestamp                                 : Mon Nov 30 10:00:00 2026
Driver Version                            : 580.95.05
CUDA Version                              : 13.0

Attached GPUs                             : 2
GPU 00000000:21:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    Product Architecture                  : Ampere
    Display Active                        : Disabled
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    MIG Devices                           : None
    GPU UUID                              : GPU-6f86e5f6-0000-0000-0000-000000000001
    GPU Recovery Action                   : None
    PCI
        Bus                               : 0x21
        Device Id                         : 0x20B210DE
        Bus Id                            : 00000000:21:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 1
                Device Max                : 4
                Host Max                  : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 12
    Performance State                     : P0
    FB Memory Usage
        Total                             : 81920 MiB
        Reserved                          : 749 MiB
        Used                              : 1022 MiB
        Free                              : 80149 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
        Used                              : 1 MiB
    Compute Mode                          : Default
    ECC Mode
        Current                           : Enabled
        Pending                           : Enabled
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : Yes
        Remapping Failure Occurred        : No
    GPU Power Readings
        Current Power Limit               : 350.00 W
        Default Power Limit               : 400.00 W
        Min Power Limit                   : 100.00 W
        Max Power Limit                   : 400.00 W
    Processes
        GPU instance ID                   : N/A
        Process ID                        : 4242
            Type                          : C
            Used GPU Memory               : 1010 MiB
    Fabric
        State                             : Completed

GPU 00000000:81:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    MIG Mode
        Current                           : Enabled
    MIG Devices
        MIG Device
            Index                         : 0
            FB Memory Usage
                Total                     : 20096 MiB
        MIG Device
            Index                         : 1
            FB Memory Usage
                Total                     : 20096 MiB
    GPU UUID                              : GPU-6f86e5f6-0000-0000-0000-000000000002
"""
WHOLE = {
    "index": 0, "uuid": "GPU-6f86e5f6-0000-0000-0000-000000000001", "bus_id": "0000:21:00.0",
    "name": "NVIDIA A100-SXM4-80GB", "device_id": "20b2", "memory_total_mib": 81920, "memory_used_mib": 1022,
    "memory_reserved_mib": 749, "bar1_total_mib": 131072, "mig_enabled": False, "ecc_enabled": True,
    "compute_mode": "Default", "generation_now": 1, "generation_max": 4, "generation_slot": 5, "width_now": 8,
    "width_max": 16, "replays": 12, "limit_w": 350.0, "default_w": 400.0, "min_w": 100.0, "processes": 1,
    "fabric": "Completed", "memory_repair": "pending", "persistence": True, "display_active": False, "fault": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [("143771 MiB", 143771), ("16x", 16), ("N/A", None), ("[N/A]", None), ("", None), ("ERR!", None), ("-5 MiB", None)],
)
def test_a_number_loses_its_unit_and_other_words_are_no_number(text: str, value: int | None) -> None:
    assert whole(text) == value


def test_figures_switches_and_words_for_nothing_are_told_apart() -> None:
    assert number("700.00 W") == 700.0
    assert [switch(word) for word in ("Enabled", "Off", "Yes", "N/A", None)] == [True, False, True, None, None]
    spellings = ("N/A", "[N/A]", "[Not Supported]", "Not Supported", "[GPU is lost]", "Unknown Error", "", None)
    assert all(missing(word) for word in spellings)
    assert not missing("NVIDIA H200")


def test_the_recorded_report_of_two_h200() -> None:
    reading = parse_xml(XML)
    first, second = reading.cards
    assert (reading.driver, reading.cuda, reading.damage) == ("580.159.04", "13.0", ())
    assert first.uuid == "GPU-1aaaaaaa-3811-abea-ebb9-000000000001"
    assert (first.bus_id, second.bus_id) == ("0000:00:06.0", "0000:00:07.0")
    assert (first.name, first.device_id, first.architecture) == ("NVIDIA H200", "2335", "Hopper")
    assert (first.memory_total_mib, first.memory_used_mib, first.memory_reserved_mib) == (143771, 0, 616)
    assert (first.limit_w, first.default_w, first.min_w, first.max_w) == (700.0, 700.0, 200.0, 700.0)
    assert (first.generation_max, first.width_max, first.generation_slot) == (5, 16, None)
    assert (first.ecc_enabled, first.mig_enabled, first.persistence) == (True, False, True)
    assert (first.display_active, first.display_attached, first.fault, first.processes) == (False, True, None, 0)


def test_the_recorded_box_tells_the_same() -> None:
    box, report = parse_table(BOX), parse_xml(XML)
    assert (box.driver, box.cuda, box.damage, box.notes) == (report.driver, report.cuda, (), ())
    for name in ("bus_id", "name", "memory_total_mib", "memory_used_mib", "ecc_enabled", "mig_enabled", "limit_w"):
        assert [getattr(card, name) for card in box.cards] == [getattr(card, name) for card in report.cards]


def test_a_report_that_describes_fewer_cards_than_are_attached_says_so() -> None:
    text = XML.replace("<attached_gpus>2<", "<attached_gpus>3<")
    assert parse_xml(text).damage == ("the report says 3 cards are attached and describes 2",)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(XML[XML.index("<nvidia_smi_log") :], id="without its first lines"),
        pytest.param(f"user@host:~$ nvidia-smi -q -x\n{XML}\nuser@host:~$ ", id="between two prompts"),
        pytest.param(f"{XML}\n{XML}", id="twice"),
    ],
)
def test_a_report_with_something_around_it_is_read(text: str) -> None:
    assert parse_xml(text) == parse_xml(XML)


def test_a_report_with_the_versions_renamed_as_the_box_has_them() -> None:
    text = XML.replace("driver_version>", "kmd_version>").replace("cuda_version>", "cuda_umd_version>")
    assert (parse_xml(text).driver, parse_xml(text).cuda) == (parse_xml(XML).driver, "13.0")


@pytest.mark.parametrize(("status", "usable"), [("Success", True), ("Insufficient Resources", False)])
def test_a_registration_with_the_switches_that_ended_without_success(status: str, usable: bool) -> None:
    found = host(smi_xml=XML.replace("<status>Success</status>", f"<status>{status}</status>"))
    assert [gpu.usable for gpu in found.gpus] == [usable] * 2


@pytest.mark.parametrize(
    ("fabric", "usable"),
    [({"state": 3, "status": 0}, True), ({"state": 3, "status": 999}, False), ({"state": 0, "status": 0}, True)],
)
def test_nvml_says_the_same_of_that_registration(fabric: dict[str, int], usable: bool) -> None:
    device = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA H200", "compute_capability": [9, 0], "fabric": fabric}
    (gpu,) = host(nvml=json.dumps({"count": 1, "devices": [device]})).gpus
    assert gpu.usable is usable


def test_a_card_for_one_program_at_a_time_is_told_from_report_and_box() -> None:
    report = XML.replace("<compute_mode>Default<", "<compute_mode>Exclusive_Process<", 1)
    box = BOX.replace("    Default |", " E. Process |", 1)
    for found in (host(smi_xml=report), host(smi_table=box)):
        assert all(gpu.usable for gpu in found.gpus)
        assert "one program at a time" in text_of(found, "compute_exclusive")


def test_a_lost_card_inside_the_report() -> None:
    text = XML.replace("<total>143771 MiB</total>", "<total>GPU is lost</total>", 1)
    assert parse_xml(text).cards[0].fault == "GPU is lost"


def test_a_card_that_its_compute_mode_bars_is_read_from_report_and_box_and_left_out_with_the_cure() -> None:
    report = XML.replace("<compute_mode>Default<", "<compute_mode>Prohibited<", 1)
    box = BOX.replace("    Default |", " Prohibited |", 1)
    for reading in (parse_xml(report), parse_table(box)):
        assert [card.compute_mode == PROHIBITED for card in reading.cards] == [True, False]
    found = host(smi_xml=report)
    assert [card.usable for card in found.gpus] == [False, True]
    assert "nvidia-smi -c DEFAULT" in text_of(found, "compute_prohibited")


@pytest.mark.parametrize("text", ["", "hello", "<?xml version='1.0'?><other/>", XML[: len(XML) // 2]])
def test_a_foreign_or_cut_report_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_xml(text)


def test_entities_are_not_expanded() -> None:
    with pytest.raises(ParseError, match="entities"):
        parse_xml('<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><nvidia_smi_log>&a;</nvidia_smi_log>')


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", "driver_library_mismatch"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "module_not_loaded"),
        ("No devices were found", "no_devices"),
        ("No devices found.", "no_devices"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "gpu_access_blocked"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "nvml_missing"),
        ("Failed to initialize NVML: Insufficient Permissions", "no_permission"),
        ("Failed to initialize NVML: Unknown Error", "nvml_failed"),
        ("Error: Unknown Error", "nvml_failed"),
        ("bash: nvidia-smi: command not found", "smi_missing"),
        ("zsh: command not found: nvidia-smi", "smi_missing"),
        ("Command 'nvidia-smi' not found, but can be installed with:\napt install nvidia-utils-580", "smi_missing"),
        ("NVIDIA-SMI has failed because it couldn\u2019t communicate with the NVIDIA driver.", "module_not_loaded"),
        ("NVIDIA-SMI has failed because you do not have sufficient permissions.", "no_permission"),
        ("No supported GPUs were found", "no_devices"),
        ("Segmentation fault (core dumped)", "smi_broken"),
        ("bash: /usr/bin/nvidia-smi: cannot execute binary file: Exec format error", "smi_broken"),
        ("-bash: /usr/bin/nvidia-smi: Input/output error", "smi_broken"),
        ("Killed", "smi_broken"),
    ],
)  # fmt: skip
def test_words_instead_of_an_inventory(text: str, code: str) -> None:
    found = failure(text)
    assert found is not None
    assert found.code == code
    assert all(parse(text).failure == found for parse in (parse_table, parse_list, parse_xml))


def test_words_that_nobody_knows_are_repeated() -> None:
    with pytest.raises(ParseError, match="but 'the dog ate it'"):
        parse_text("the dog\n ate it\n")


@pytest.mark.parametrize("attached", [2, 3])
def test_a_lost_card_may_be_among_the_attached_ones_or_not(attached: int) -> None:
    text = "Unable to determine the device handle for GPU 0000:21:00.0: GPU is lost.\n" + XML
    reading = parse_xml(text.replace("<attached_gpus>2<", f"<attached_gpus>{attached}<"))
    assert (len(reading.cards), len(reading.lost), reading.damage) == (2, 1, ())


@pytest.mark.parametrize(
    ("form", "parse"),
    [
        (BOX, parse_table),
        (XML, parse_xml),
        (REPORT, parse_report),
        ("GPU 0: NVIDIA L40 (UUID: GPU-6f86e5f6-0000-0000-0000-000000000001)", parse_list),
        ("index, name, memory.total [MiB]\n0, NVIDIA L40, 46068 MiB\n", parse_query),
        ("No devices were found", parse_table),
    ],
)
def test_whatever_form_is_pasted_is_read_as_what_it_is(form: str, parse: Callable[[str], Reading]) -> None:
    assert parse_text(form) == parse(form)


def test_the_report_as_text_says_what_its_xml_says() -> None:
    reading = parse_report(REPORT)
    assert (reading.driver, reading.cuda, reading.damage) == ("580.95.05", "13.0", ())
    whole, split = reading.cards
    assert {name: getattr(whole, name) for name in WHOLE} == WHOLE
    assert (split.mig_enabled, [item.memory_mib for item in split.mig_instances]) == (True, [20096, 20096])


def test_a_report_as_text_that_lacks_a_card_says_so() -> None:
    assert parse_report(
        REPORT.replace("Attached GPUs                             : 2", "Attached GPUs : 3")
    ).damage == ("the report says 3 cards are attached and describes 2",)


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        pytest.param(
            "index, name, uuid, memory.total [MiB], driver_version\n"
            "1, NVIDIA L40, GPU-1, 46068 MiB, 580.95.05\n0, NVIDIA A40, GPU-0, 46068 MiB, 580.95.05\n",
            [(0, "NVIDIA A40", "GPU-0", None, 46068), (1, "NVIDIA L40", "GPU-1", None, 46068)],
            id="in another order",
        ),
        pytest.param(
            "name, pci.bus_id, memory.total [MiB]\nNVIDIA L40, 00000000:21:00.0, 46068\n",
            [(0, "NVIDIA L40", None, "0000:21:00.0", 46068)],
            id="without units and index",
        ),
        pytest.param(
            "$ nvidia-smi --query-gpu=name,uuid,memory.total --format=csv\nname, uuid, memory.total [MiB]\n"
            "NVIDIA GB10, GPU-0, [N/A]\n\n",
            [(0, "NVIDIA GB10", "GPU-0", None, None)],
            id="a value that is not there",
        ),
        pytest.param(
            "1, NVIDIA L40, 00000000:21:00.0, 105 MiB, 46068 MiB, 8.9, 580.126.18, P0\n"
            "0, NVIDIA L40, 00000000:1B:00.0, 93 MiB, 46068 MiB, 8.9, 580.126.18, P8\n",
            [(0, "NVIDIA L40", None, "0000:1b:00.0", 46068), (1, "NVIDIA L40", None, "0000:21:00.0", 46068)],
            id="without a heading",
        ),
    ],
)
def test_a_query_is_read_by_its_columns(text: str, cards: list[tuple[object, ...]]) -> None:
    found = parse_query(text).cards
    assert [(one.index, one.name, one.uuid, one.bus_id, one.memory_total_mib) for one in found] == cards


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no, card, here", "no line is a card"),
        ("NVIDIA L40, a card, of no size", "no line is a card"),
        ("index, name\n", "no line is a card"),
        ("index, name\n0, a\n0, b\n", "two cards with one index"),
    ],
)
def test_a_query_that_names_no_card_is_refused(text: str, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        parse_query(text)


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        pytest.param(
            "GPU models and configuration:\nGPU 0: NVIDIA L40\nGPU 1: Tesla T4\n\nNvidia driver version: 550.54.14\n",
            [(0, "NVIDIA L40", None), (1, "Tesla T4", None)],
            id="an environment",
        ),
        pytest.param("GPU 0,1: NVIDIA L40", [(0, "NVIDIA L40", None), (1, "NVIDIA L40", None)], id="several of a kind"),
        pytest.param("GPU0: NVIDIA L40, 46068 MiB, driver 590.44.01", [(0, "NVIDIA L40", 46068)], id="with its memory"),
        pytest.param(
            "GPU 0: NVIDIA L40 (UUID: GPU-x)\n\t Link 0: 14.062 GB/s\n", [(0, "NVIDIA L40", None)], id="nvlink -s"
        ),
    ],
)
def test_a_list_of_cards_without_uuids(text: str, cards: list[tuple[object, ...]]) -> None:
    reading = parse_list(text)
    assert [(card.index, card.name, card.memory_total_mib) for card in reading.cards] == cards
    assert all(card.uuid is None for card in reading.cards)
    assert reading.damage == ()
    assert parse_text(text) == reading


@pytest.mark.parametrize("line", ["GPU 0: NVIDIA L40 (UUID: GPU-6f8", "GPU 0: 00000000:01:00.0", "GPU 0: is hot"])
def test_a_line_that_is_no_card_of_a_list_is_none(line: str) -> None:
    with pytest.raises(ParseError, match="no card listed"):
        parse_list(line)


def test_a_query_names_faulty_cards_and_torn_lines() -> None:
    reading = parse_query("index, name, memory.total [MiB]\n0, NVIDIA L40, [GPU is lost]\n1, NVIDIA\n")
    assert reading.cards[0].fault == "GPU is lost"
    assert "2 values under 3 columns" in reading.damage[0]


def test_cards_without_a_handle_are_lost_not_forgotten() -> None:
    text = "Unable to determine the device handle for GPU 0000:21:00.0: GPU is lost.  Reboot the system.\n"
    assert parse_table(text).lost == (Lost(bus_id="0000:21:00.0", why="GPU is lost"),)
    assert parse_xml(text + XML).lost == parse_table(text).lost
    both = "Unable to determine the device handle for GPU1: 0000:46:00.0: Unknown Error\n"
    assert parse_table(both).lost == (Lost(1, "0000:46:00.0", "Unknown Error"),)
    short = "Unable to determine the device handle for GPU0: Unknown Error"
    assert parse_table(short).lost == (Lost(0, None, "Unknown Error"),)


def test_boards_without_a_memory_size() -> None:
    """GB10: the memory cell says "Not Supported", the power limit N/A, the PCI domain is not 0."""
    box = BOX.replace("00000000:00:06.0", "0000000F:01:00.0").replace("0MiB / 143771MiB", "Not Supported    ")
    first = parse_table(box.replace("77W /  700W", " 5W /  N/A ")).cards[0]
    assert (first.bus_id, first.memory_total_mib, first.memory_unified) == ("000f:01:00.0", None, True)
    assert (first.limit_w, first.fault) == (None, None)


@pytest.mark.parametrize(
    ("banner", "driver", "cuda"),
    [
        ("NVIDIA-SMI 440.33.01    Driver Version: 440.33.01    CUDA Version: 10.2", "440.33.01", "10.2"),
        ("NVIDIA-SMI 610.57.04   KMD Version: 610.57.04     CUDA UMD Version: 13.3", "610.57.04", "13.3"),
        ("NVIDIA-SMI 580.95.05   Driver Version: 581.57     CUDA Version: 13.0", "581.57", "13.0"),
        ("NVIDIA-SMI 580.95.05   Driver Version: 580.95.05  CUDA Version: ERR!", "580.95.05", None),
        ("NVIDIA-SMI 375.66      Driver Version: 375.66", "375.66", None),
    ],
)
def test_banners_of_three_generations(banner: str, driver: str, cuda: str | None) -> None:
    lines = BOX.split("\n")
    lines[2] = f"| {banner} |"
    reading = parse_table("\n".join(lines))
    assert (reading.driver, reading.cuda, len(reading.cards)) == (driver, cuda, 2)


def test_a_box_from_which_a_card_is_missing() -> None:
    lines = [line for line in BOX.split("\n") if "00000000:00:06.0" not in line]
    assert any("some are missing" in spot for spot in parse_table("\n".join(lines)).damage)


def test_the_list_gives_names_and_uuids() -> None:
    reading = parse_list("GPU 0: NVIDIA A30 (UUID: GPU-b93fcc11-c278-573a-9ed8-7cb08a38cd1a)\n")
    assert (reading.cards[0].name, reading.cards[0].uuid) == ("NVIDIA A30", "GPU-b93fcc11-c278-573a-9ed8-7cb08a38cd1a")


def test_a_published_report_in_place_of_the_box_is_read_as_the_report() -> None:
    recording = parse_published(yaml.safe_dump({"nvidia_smi": XML}))
    assert build_inventory(recording).gpus == host(smi_xml=XML).gpus


REMAPPED = "<remapped_row_{}>No<"
LICENCE = "<vgpu_software_licensed_product><license_status>{}</license_status></vgpu_software_licensed_product>"


@pytest.mark.parametrize(
    ("healthy", "report", "code"),
    [
        (REMAPPED.format("pending"), "<remapped_row_pending>Yes<", "memory_repair_pending"),
        (REMAPPED.format("failure"), "<remapped_row_failure>Yes<", "memory_worn"),
        ("<pending_retirement>N/A<", "<pending_retirement>Yes<", "memory_repair_pending"),
        ("<fb_memory_usage>", LICENCE.format("Unlicensed (Restricted)") + "<fb_memory_usage>", "vgpu_unlicensed"),
        ("<fb_memory_usage>", LICENCE.format("Licensed (Expiry: 2026-7-7 16:1:44 GMT)") + "<fb_memory_usage>", None),
    ],
)
def test_worn_memory_and_a_missing_licence_are_told_and_the_card_stays(
    healthy: str, report: str, code: str | None
) -> None:
    assert healthy in XML
    found = host(smi_xml=XML.replace(healthy, report, 1))
    first, second = found.gpus
    assert first.usable
    assert [item.code for item in found.diagnoses if item.gpu == first.uuid] == [code] * (code is not None)
    assert not [item for item in found.diagnoses if item.gpu == second.uuid]

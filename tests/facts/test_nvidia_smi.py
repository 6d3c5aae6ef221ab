"""nvidia-smi's box, list and XML report, and its words where there is no inventory."""

from __future__ import annotations

import pytest
import yaml

from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.published import parse_published
from qwenlab.facts.readings import PROHIBITED, Lost, ParseError
from qwenlab.facts.smi_table import parse_list, parse_table
from qwenlab.facts.smi_values import failure, missing, number, switch, whole
from qwenlab.facts.smi_xml import parse_xml
from tests.facts.hosts import H200_PAIR, host, text_of

XML = (H200_PAIR / "smi.xml").read_text()
BOX = (H200_PAIR / "smi.txt").read_text()


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
        ("bash: nvidia-smi: command not found", "smi_missing"),
    ],
)  # fmt: skip
def test_words_instead_of_an_inventory(text: str, code: str) -> None:
    found = failure(text)
    assert found is not None
    assert found.code == code
    assert all(parse(text).failure == found for parse in (parse_table, parse_list, parse_xml))


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

"""Every published host of the corpus is understood as its file says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from qwenlab.facts.inventory import build_inventory
from qwenlab.facts.published import parse_published
from qwenlab.facts.readings import ParseError
from qwenlab.facts.summary import summarise
from tests.facts.hosts import CORPUS, codes, corpus, corpus_path, expected, recording_of

KEYS = (
    "parse", "usable_gpus", "gpu_count", "nvlink_pairs", "nvlink_all_to_all", "same_pcie_switch_groups",
    "same_root_complex_groups", "same_numa_node_groups_by_label", "cross_socket_pairs", "numa_by_gpu", "nic_columns",
)  # fmt: skip


def test_the_corpus_is_whole() -> None:
    assert len(CORPUS) == 60


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_published_host_is_summed_up_as_its_page_says(path: Path) -> None:
    want = expected(path)
    summary = summarise(build_inventory(recording_of(path)))
    assert {key: summary[key] for key in KEYS if key in want} == {key: want[key] for key in KEYS if key in want}


@pytest.mark.parametrize("path", [path for path in CORPUS if "diagnosis" in expected(path)], ids=lambda path: path.stem)
def test_what_is_wrong_with_a_published_host_is_diagnosed(path: Path) -> None:
    assert expected(path)["diagnosis"] in codes(build_inventory(recording_of(path)))


def test_a_matrix_that_contradicts_itself_is_rejected_by_name() -> None:
    inventory = corpus("22")
    assert "rows GPU2, GPU3 have no column (columns GPU0-1)" in inventory.diagnoses[0].text
    assert not inventory.pairs


def test_mig_instances_keep_their_profiles_and_sizes() -> None:
    (card,) = corpus("61").gpus
    assert len(card.mig_instances) == expected(corpus_path("61"))["mig_devices"]
    assert {item.profile for item in card.mig_instances} == {"1g.6gb"}
    assert {item.memory_mib for item in card.mig_instances} == {5952}
    assert all((item.uuid or "").startswith("MIG-") for item in card.mig_instances)


def test_mig_mode_without_an_instance_is_told_as_that() -> None:
    published = yaml.safe_load(corpus_path("61").read_text())
    published["nvidia_smi_L"] = published["nvidia_smi_L"].split("\n")[0]
    published["nvidia_smi"] = published["nvidia_smi"].split("\n\n")[0]
    (card,) = build_inventory(parse_published(yaml.safe_dump(published))).gpus
    assert (card.mig_enabled, card.mig_instances) == (True, ())
    assert card.unusable_because == "is in MIG mode; switch MIG off to use the whole card (nvidia-smi -mig 0)"


def test_mixed_mig_profiles_are_listed_each_with_its_memory() -> None:
    assert [item.memory_mib for item in corpus("62").gpus[0].mig_instances] == [11968, 5952]


def test_the_card_that_failed_is_named_by_its_slot() -> None:
    failed = [gpu for gpu in corpus("64").gpus if not gpu.usable]
    assert [gpu.pci_bus_id for gpu in failed] == expected(corpus_path("64"))["failed"]
    assert failed[0].xid == (119,)


def test_a_lost_card_stays_in_the_inventory() -> None:
    inventory = corpus("68")
    lost = [gpu.pci_bus_id for gpu in inventory.gpus if not gpu.usable]
    assert lost == expected(corpus_path("68"))["lost"]
    assert len(inventory.gpus) == expected(corpus_path("68"))["gpu_count_lspci"]


@pytest.mark.parametrize(
    ("number", "field", "value"),
    [
        ("01", "driver.loaded", "560.35.03"),
        ("31", "driver.loaded", "595.91.07"),
        ("49", "os.pretty_name", "Linux (first-generation Threadripper)"),
        ("55", "os.kernel", "7.0.0-28"),
        ("73", "wsl2", True),
        ("74", "os.kernel", "5.15.146.1"),
    ],
)
def test_what_a_report_says_of_its_host(number: str, field: str, value: object) -> None:
    found: Any = corpus(number)
    for name in field.split("."):
        found = getattr(found, name)
    assert found == value


@pytest.mark.parametrize(
    ("number", "code"),
    [
        ("56", "display_on_card"),
        ("71", "display_on_card"),
        ("86", "unequal_power_limits"),
        ("50", "driver_branch_capped"),
    ],
)
def test_what_its_owner_should_know_is_told(number: str, code: str) -> None:
    assert code in codes(corpus(number))


@pytest.mark.parametrize(
    ("words", "wsl2"),
    [
        ("WSL2 Ubuntu 22.04", True),
        ("Ubuntu 24.04 on WSL2 (Windows 11)", True),
        ("WSL 2, Debian", True),
        ("Ubuntu 22.04, kernel 5.15.153.1-microsoft-standard-WSL2", True),
        ("Windows 11 (plus an AMD iGPU)", False),
        ("Ubuntu 24.04", False),
    ],
)
def test_wsl2_is_known_by_whatever_its_owner_calls_it(words: str, wsl2: bool) -> None:
    assert build_inventory(parse_published(yaml.safe_dump({"os": words, "gpus": [{"name": "RTX 4090"}]}))).wsl2 is wsl2


@pytest.mark.parametrize(
    ("state", "usable"),
    [("ok", True), ("OK", True), ("healthy", True), ("", True), (None, True), ("lost", False), ("ERR!", False)],
)
def test_what_a_list_of_cards_says_of_a_cards_state(state: str | None, usable: bool) -> None:
    row = {"name": "NVIDIA GeForce RTX 3090", "state": state}
    (card,) = build_inventory(parse_published(yaml.safe_dump({"gpus": [row]}))).gpus
    assert card.usable is usable


@pytest.mark.parametrize(
    ("rows", "cards"),
    [
        pytest.param(["RTX 3090", "RTX 3060"], [("RTX 3090", 24576), ("RTX 3060", None)], id="names alone"),
        pytest.param([{"name": "RTX 3090", "count": 3}], [("RTX 3090", 24576)] * 3, id="a kind and how many"),
        pytest.param(["2x RTX 3090", "L4"], [("RTX 3090", 24576)] * 2 + [("L4", 24576)], id="so many of a kind"),
        pytest.param([{"name": "RTX 4090", "vram_gib": 48}], [("RTX 4090", 49152)], id="memory in GiB"),
        pytest.param([{"name": "RTX 4090", "vram": "48 GB"}], [("RTX 4090", 49152)], id="memory with its unit"),
        pytest.param(
            [{"name": "L4", "index": 0}, {"name": "L4", "index": 0}], [("L4", 24576)] * 2, id="a number twice"
        ),
    ],
)
def test_a_list_of_cards_as_people_write_it(rows: list[object], cards: list[tuple[str, int | None]]) -> None:
    found = build_inventory(parse_published(yaml.safe_dump({"gpus": rows}))).gpus
    assert [(gpu.name, gpu.memory_total_mib) for gpu in found] == cards


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ("2x RTX 3090", "a list of cards is expected, each a name (RTX 3090, 2x RTX 3090)"),
        ([3090], "a list of cards is expected"),
        ([{"name": "RTX 3090", "count": "two"}], "a count from 1 to 64 is expected, not 'two'"),
        (["100x RTX 3090"], "a count from 1 to 64 is expected, not 100"),
        ([{"name": "RTX 3090", "vram_gib": "lots"}], "'lots' is no size of a card's memory; write vram_gib: 24"),
    ],
)
def test_a_list_of_cards_that_cannot_be_read_is_no_machine(gpus: object, words: str) -> None:
    with pytest.raises(ParseError, match=re.escape(words)):
        parse_published(yaml.safe_dump({"gpus": gpus}))


@pytest.mark.parametrize(
    ("published", "told"),
    [
        pytest.param({"gpus": [{"name": "L4", "uuid": "GPU-1"}] * 2}, True, id="copied"),
        pytest.param(
            {"nvidia_smi_L": "GPU 0: NVIDIA L4 (UUID: GPU-11)\nGPU 1: NVIDIA L4 (UUID: GPU-11)"}, True, id="in a list"
        ),
        pytest.param(
            {"nvidia_smi_L": "GPU 0: NVIDIA L4 (UUID: GPU-xxxx)\nGPU 1: NVIDIA L4 (UUID: GPU-xxxx)"}, False, id="hidden"
        ),
        pytest.param({"gpus": [{"name": "L4", "uuid": "GPU-xxxx"}] * 2}, False, id="hidden in the list"),
    ],
)
def test_a_uuid_that_identifies_no_card_makes_no_two_cards_one(published: dict[str, object], told: bool) -> None:
    found = build_inventory(parse_published(yaml.safe_dump(published)))
    assert [gpu.uuid for gpu in found.gpus] == [None, None]
    assert ("sources_disagree" in codes(found)) is told


def test_a_card_without_a_column_in_the_matrix_is_named() -> None:
    matrix = "\tGPU0\tGPU1\nGPU0\t X \tPHB\nGPU1\tPHB\t X \n"
    found = build_inventory(parse_published(yaml.safe_dump({"gpus": ["L4"] * 3, "topo_matrix": matrix})))
    assert "no column for GPU2" in next(item.text for item in found.diagnoses if item.code == "sources_disagree")

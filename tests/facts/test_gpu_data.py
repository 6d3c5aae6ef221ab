"""The device table: whole, without contradictions, and found by every spelling in use."""

from __future__ import annotations

from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from qwenlab import gpu_data
from qwenlab.gpu_data import ModuleFlavour, Segment
from tests.data_sheets import data_sheet
from tests.facts.hosts import CORPUS

CARDS = gpu_data.table().cards


def test_every_architecture_from_turing_on_is_covered_for_every_kind_of_owner() -> None:
    covered = {(card.architecture, card.segment) for card in CARDS}
    for architecture in ("Turing", "Ampere", "Ada Lovelace", "Blackwell"):
        for segment in (Segment.CONSUMER, Segment.LAPTOP, Segment.WORKSTATION, Segment.DATACENTRE):
            assert (architecture, segment) in covered
    assert ("Hopper", Segment.DATACENTRE) in covered


def test_an_id_belongs_to_one_card_of_the_family_around_it() -> None:
    ids = [device_id for card in CARDS for device_id in card.pci_ids]
    assert len(ids) == len(set(ids))
    for card in CARDS:
        for device_id in card.pci_ids:
            family = gpu_data.family_of(device_id)
            assert family is not None, (card.name, device_id)
            assert family.compute_capability == card.compute_capability, (card.name, device_id)


def test_ids_are_quoted_in_the_file() -> None:
    """YAML reads 2204 as a number and would read 08e1 as one on another day."""
    raw = yaml.safe_load(files("qwenlab").joinpath("data/gpus.yaml").read_text())
    assert all(isinstance(value, str) for row in (*raw["cards"], *raw["families"].values()) for value in row["ids"])


def test_families_do_not_overlap() -> None:
    spans = sorted((low, high) for family in gpu_data.table().families for low, high in family.id_ranges)
    assert all(before[1] < after[0] for before, after in pairwise(spans))


def test_figures_are_plausible() -> None:
    for card in CARDS:
        assert card.bandwidth_gb_s > 0
        assert card.source
        if card.fp16_tflops and card.fp16_acc16_tflops:
            assert card.fp16_acc16_tflops in (card.fp16_tflops, pytest.approx(2 * card.fp16_tflops, rel=0.01)), (
                card.name
            )
        if card.fp8_tflops:
            assert card.compute_capability is not None
            assert card.compute_capability >= (8, 9), card.name
        if card.fp4_tflops:
            assert card.architecture == "Blackwell", card.name


@pytest.mark.parametrize(
    ("name", "device_id", "expected"),
    [
        ("NVIDIA GeForce RTX 3090", None, "NVIDIA GeForce RTX 3090"),
        ("RTX3090", None, "NVIDIA GeForce RTX 3090"),
        ("GeForce RTX 3090 Ti", None, "NVIDIA GeForce RTX 3090 Ti"),
        ("NVIDIA RTX 6000 Ada Gene...", None, "NVIDIA RTX 6000 Ada Generation"),
        ("NVIDIA H100 80GB HBM3", None, "NVIDIA H100 80GB HBM3"),
        (None, "0x2204", "NVIDIA GeForce RTX 3090"),
        (None, "10DE:2B85", "NVIDIA GeForce RTX 5090"),
        (None, "0x220410DE", "NVIDIA GeForce RTX 3090"),
        (None, 0x220410DE, "NVIDIA GeForce RTX 3090"),
        ("Quadro RTX 8000", "1e30", "Quadro RTX 8000"),
        ("NVIDIA A2", "25b6", "NVIDIA A2"),
        ("some name", "2684", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_a_card_is_found_by_its_id_or_the_names_that_tools_print(
    name: str | None, device_id: str | int | None, expected: str
) -> None:
    assert data_sheet(name=name, device_id=device_id).name == expected


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.name)
def test_the_name_alone_places_every_card_of_the_table_in_its_family(card: gpu_data.GpuSpec) -> None:
    family = gpu_data.family_of(name=card.name)
    assert family is not None
    assert family.key == card.family


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("GeForce GTX 580", "fermi"),
        ("Tesla K80", "kepler"),
        ("NVIDIA GeForce GT 710", "kepler"),
        ("Quadro K2200", "gm10x"),
        ("Quadro M6000", "gm20x"),
        ("NVIDIA GeForce GTX 1050 Ti", "gp10x"),
        ("Quadro GP100", "gp100"),
        ("Quadro GV100", "gv100"),
        ("GRID V100L-16Q", "gv100"),
        ("NVIDIA T500", "tu11x"),
        ("NVIDIA GeForce MX450", "tu11x"),
        ("NVIDIA CMP 50HX", "tu10x"),
        ("NVIDIA A100X", "ga100"),
        ("NVIDIA PG506-232", "ga100"),
        ("NVIDIA GeForce RTX 2050", "ga10x"),
        ("RTX 3050 Ti Laptop GPU", "ga10x"),
        ("NVIDIA RTX A1000", "ga10x"),
        ("NVIDIA RTX 3500 Ada Generation Laptop GPU", "ad10x"),
        ("NVIDIA RTX 5000 Ada Generation", "ad10x"),
        ("NVIDIA H100", "gh100"),
        ("NVIDIA B100", "gb100"),
        ("NVIDIA RTX PRO 1000 Blackwell Generation Laptop GPU", "gb20x"),
        ("NVIDIA RTX 6000D", "gb20x"),
        ("NVIDIA Thor", "gb10b"),
        ("Radeon RX 7900", None),
        ("NVIDIA GeForce ...", None),
        ("", None),
    ],
)
def test_a_card_that_is_not_in_the_table_is_placed_by_its_name(name: str, family: str | None) -> None:
    found = gpu_data.family_of(name=name)
    assert (found.key if found else None) == family


@pytest.mark.parametrize(
    ("memory_mib", "device_id", "name"),
    [
        (8192, None, "NVIDIA CMP 170HX"),
        (8192, "20c2", "NVIDIA CMP 170HX"),
        (32607, None, None),
        (24576, "2204", "NVIDIA GeForce RTX 3090"),
    ],
)
def test_a_card_that_its_driver_has_no_name_for_is_told_by_its_id_or_memory(
    memory_mib: int, device_id: str | None, name: str | None
) -> None:
    found = gpu_data.find(name="NVIDIA Graphics Device", device_id=device_id, memory_mib=memory_mib)
    assert (found.name if found else None) == name


def test_a_card_that_is_not_in_the_table_is_not_guessed() -> None:
    assert gpu_data.find(name="RTX 9090") is None


@pytest.mark.parametrize(
    ("cut", "memory_mib", "device_id", "name"),
    [
        ("Tesla V100-PCIE...", 16160, None, "Tesla V100-PCIE-16GB"),
        ("NVIDIA A100-SXM...", 81920, None, "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA GeForce RTX 3080 ...", 8192, None, "NVIDIA GeForce RTX 3080 Laptop GPU"),
        ("NVIDIA GeForce RTX 5070 ...", 8151, None, "NVIDIA GeForce RTX 5070 Laptop GPU"),
        ("NVIDIA RTX PRO 4500 Blac...", 32623, None, "NVIDIA RTX PRO 4500 Blackwell"),
        ("NVIDIA RTX PRO 6000 Blac...", 97887, "2bb5", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("NVIDIA GeForce ...", 24564, "2684", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_a_name_that_nvidia_smi_cut_is_told_by_memory_and_id(
    cut: str, memory_mib: int, device_id: str | None, name: str
) -> None:
    found = gpu_data.find(name=cut, device_id=device_id, memory_mib=memory_mib)
    assert found is not None
    assert found.name == name


def test_a_cut_name_that_fits_several_cards_tells_what_they_share() -> None:
    assert gpu_data.find(name="NVIDIA RTX PRO 6000 Blac...", memory_mib=97887) is None
    alike = gpu_data.of_cut_name("NVIDIA RTX PRO 6000 Blac...", 97887)
    assert gpu_data.in_common(alike) == {"architecture": "Blackwell", "compute_capability": (12, 0)}
    assert gpu_data.of_cut_name("NVIDIA GeForce ...", 24576) == (), "a brand alone is no card"
    assert gpu_data.of_cut_name("NVIDIA RTX PRO 6000", 97887) == (), "a whole name is not a cut one"


@pytest.mark.parametrize(
    ("name", "physical"),
    [
        ("NVIDIA A10-24Q", "NVIDIA A10"),  # Azure NV36ads_A10_v5
        ("NVIDIA L40S-2Q", "NVIDIA L40S"),
        ("GRID T4-16Q", "Tesla T4"),
        ("GRID A100D-40C", "NVIDIA A100 80GB PCIe"),
        ("GRID A100DX-80C", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA H100XM-80C", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA H100L-94C", "NVIDIA H100 NVL"),
        ("NVIDIA H100XL-94C", "NVIDIA H100 96GB HBM3"),
        ("NVIDIA H100XS-64C", "NVIDIA H100 SXM5 64GB"),
        ("NVIDIA H200X-141C", "NVIDIA H200"),
        ("NVIDIA H200-141C", "NVIDIA H200 NVL"),
        ("NVIDIA RTX6000-Ada-48Q", "NVIDIA RTX 6000 Ada Generation"),
        ("GRID A100D-1-20C", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA RTX Pro 6000 Blackwell DC-4-96Q", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        ("NVIDIA RTXA6000-48Q", "NVIDIA RTX A6000"),
        ("GRID V100D-32Q", "Tesla V100-PCIE-32GB"),
        ("GRID V100DX-32Q", "Tesla V100-SXM2-32GB"),
        ("GRID RTX8000P-48Q", "Quadro RTX 8000"),
        ("NVIDIA RTX5000-Ada-32Q", "NVIDIA RTX 5000 Ada Generation"),
    ],
)
def test_a_virtual_card_is_known_by_the_card_it_is_a_share_of(name: str, physical: str) -> None:
    assert gpu_data.is_virtual(name)
    assert data_sheet(name=name).name == physical


def test_no_card_of_the_table_is_taken_for_a_virtual_one() -> None:
    assert not [card.name for card in gpu_data.table().cards if gpu_data.is_virtual(card.name)]


def test_a_cut_name_with_exchanged_memory_keeps_its_candidates() -> None:
    """An RTX 4080 SUPER with 32 GB (syv-ai/HyperQwen 149): no card of that start was sold with as much."""
    alike = gpu_data.of_cut_name("NVIDIA GeForce RTX 4080 ...", 32760)
    assert "NVIDIA GeForce RTX 4080 SUPER" in [card.name for card in alike]
    assert gpu_data.in_common(alike)["compute_capability"] == (8, 9)


@pytest.mark.parametrize(
    ("device_id", "module", "last_branch"),
    [
        ("1b80", ModuleFlavour.PROPRIETARY, 580),
        ("1db1", ModuleFlavour.PROPRIETARY, 580),
        ("102d", ModuleFlavour.PROPRIETARY, 470),
        ("1eb8", ModuleFlavour.EITHER, None),
        ("2204", ModuleFlavour.EITHER, None),
        ("2330", ModuleFlavour.EITHER, None),
        ("2b85", ModuleFlavour.OPEN, None),
        ("2901", ModuleFlavour.OPEN, None),
        ("3182", ModuleFlavour.OPEN, None),
    ],
)
def test_module_flavour_and_last_branch(device_id: str, module: ModuleFlavour, last_branch: int | None) -> None:
    family = gpu_data.family_of(device_id)
    assert family is not None
    assert (family.module, family.last_driver_branch) == (module, last_branch)


@pytest.mark.parametrize(
    ("name", "lanes", "both_ways_gb_s"),
    [
        ("RTX 3090", 4, 112.5),
        ("RTX 2080 Ti", 2, 100),
        ("A100-SXM4-80GB", 12, 600),
        ("H200", 18, 900),
        ("B200", 18, 1800),
    ],
)
def test_nvlink_rates_are_those_of_the_data_sheets(name: str, lanes: int, both_ways_gb_s: float) -> None:
    link = data_sheet(name=name).nvlink
    assert link is not None
    assert (link.lanes, 2 * link.lanes * link.lane_gb_s) == (lanes, both_ways_gb_s)


def test_consumer_cards_of_today_get_no_peer_access_from_the_official_driver() -> None:
    assert not data_sheet(name="RTX 5090").p2p_by_driver
    assert data_sheet(name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition").p2p_by_driver


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_table_agrees_with_published_hosts(path: Path) -> None:
    for row in yaml.safe_load(path.read_text())["gpus"]:
        spec = gpu_data.find(name=row["name"]) if row["name"] else None
        capability = row.get("compute_cap") or row.get("compute_cap_spec")
        memory = row.get("vram_mib") or row.get("vram_mib_spec")
        if spec is None:
            assert not row["name"] or "not shown" in row["name"]
            continue
        assert spec.compute_capability is not None
        assert capability in (None, "{}.{}".format(*spec.compute_capability))
        assert memory is None or any(abs(memory / 1024 - size) / size < 0.07 for size in spec.memory_gib)

"""What is told without a search: settings that a host cannot meet, and what its inventory found."""

from __future__ import annotations

from typing import Any

import pytest

from qwenlab.host_inventory import Driver, OperatingSystem, Source
from qwenlab.planner import plan
from qwenlab.planner.checks import NO_DRIVER, NO_UUID
from qwenlab.settings import load
from tests.facts.hosts import corpus
from tests.planner.choosing import INVENTORIES, only, planned

WRONG_SETTINGS: list[tuple[str, dict[str, Any], str, list[str]]] = [
    # machine, settings, code, words
    ("2x3090-pcie", {"layer_split": [1, 2]}, "override-impossible", ["[1, 2] adds up to 3", "must add up to 64"]),
    ("2x3090-pcie", {"layer_split": [32, 33]}, "override-impossible", ["adds up to 65", "as many of them as pipeline"]),
    ("2x3090-pcie", {"layer_split": [60, 3], "pipeline_parallel": 2}, "override-impossible", ["adds up to 63"]),
    ("2x3090-pcie", {"layer_split": [61, 3]}, "override-impossible", ["fewer than 4 layers", "does not start"]),
    ("2x3090-pcie", {"layer_split": [20, 20, 24]}, "override-impossible", ["2 cards, 3 needed", "qwen_layer_split"]),
    ("3x3090", {"port": 65_535}, "port-out-of-range", ["65535 to 65536", "65534 or less"]),
    (
        "1x3090",
        {"gateway": True, "gateway_port": 8000},
        "port-taken",
        ["1 engine takes port 8000", "qwen_gateway_port"],
    ),
    ("3x3090", {"gateway": True, "gateway_port": 8001}, "port-taken", ["8000 to 8001, and 8001", "qwen_gateway_port"]),
    ("1x3090", {"prometheus": True, "port": 9090}, "port-taken", ["9090 is that of qwen_prometheus_port"]),
    ("1x3090", {"scraped_from": ["10.0.0.1"], "port": 9100}, "port-taken", ["9100 is that of the node exporter"]),
    ("3x3090", {"model_source": "peer", "port": 8718}, "port-taken", ["8719 is that of qwen_peer_port"]),
    ("2x3090-pcie", {"data_parallel": 5}, "override-impossible", ["2 cards, 5 needed: qwen_data_parallel = 5"]),
    ("2x3090-pcie", {"tensor_parallel": 8}, "override-impossible", ["2 cards, 8 needed: qwen_tensor_parallel = 8"]),
    ("2x3090-pcie", {"tensor_parallel": 2, "pipeline_parallel": 2}, "override-impossible", ["4 needed", "pipeline_"]),
    ("1x3090", {"checkpoint": "foo"}, "override-impossible", ["qwen_checkpoint = 'foo'", "int4-autoround", "fp8"]),
    ("1x3090", {"kv_cache_dtype": "foo"}, "override-impossible", ["qwen_kv_cache_dtype = 'foo'", "bfloat16, fp8"]),
    ("2x3090-pcie", {"quality": "fidelity", "checkpoint": "int4-fast"}, "override-impossible", ["8 bits", "leave one"]),
    (
        "2x3090-pcie",
        {"speculation": "mtp", "pipeline_parallel": 2},
        "override-impossible",
        ["qwen_pipeline_parallel ask"],
    ),
    ("2x3090-pcie", {"speculation": "mtp", "layer_split": [32, 32]}, "override-impossible", ["qwen_layer_split asks"]),
    ("3x3090", {"cards": ["0", "zz"]}, "not-selected", ["qwen_cards: no card zz", "there is 0 (GPU-"]),
]


@pytest.mark.parametrize(("machine", "settings", "code", "words"), WRONG_SETTINGS)
def test_settings_that_a_host_cannot_meet_are_named(
    machine: str, settings: dict[str, Any], code: str, words: list[str]
) -> None:
    host = planned(machine, **settings)
    assert host.status == "refused"
    (refusal,) = host.refusals
    assert refusal.code == code
    assert all(word in refusal.text for word in words), refusal.text


def test_a_port_that_nobody_listens_on_is_free() -> None:
    assert planned("1x3090", port=8080, gateway_port=8080).status == "planned"
    assert planned("1x3090", port=9090).status == "planned"


def test_the_last_port_is_a_port() -> None:
    assert planned("3x3090", port=65_534).status == "planned"


def test_a_split_that_adds_up_is_taken() -> None:
    assert only(planned("2x3090-pcie", layer_split=[30, 34])).partition == (30, 34)


DIAGNOSED: list[tuple[str, str, str]] = [
    # corpus file, code, word
    ("65", "driver-library-mismatch", "Reboot; do not reinstall"),
    ("67", "module-not-loaded", "kernel module is not loaded"),
    ("22", "no-gpu", "topo could not be read"),
]


@pytest.mark.parametrize(("number", "code", "word"), DIAGNOSED)
def test_a_refusal_is_the_inventorys_own_diagnosis(number: str, code: str, word: str) -> None:
    (refusal,) = plan(corpus(number), load({})).refusals
    assert refusal.code == code
    assert word in refusal.text


@pytest.mark.parametrize(
    ("number", "word"),
    [
        ("64", "reboot, then test the card alone"),
        ("64", "GiB are held by other programs"),
        ("77", "Kernel 4.4.169"),
        ("82", "fabric manager is not running"),
    ],
)
def test_what_the_inventory_found_goes_with_the_plan(number: str, word: str) -> None:
    assert any(word in warning for warning in plan(corpus(number), load({})).warnings)


def test_a_host_whose_driver_is_yet_to_come_is_planned_with_a_note() -> None:
    inventory = INVENTORIES["2x3090-pcie"]
    bare = tuple(
        gpu.model_copy(update={"uuid": None, "memory_used_mib": None, "provenance": {"name": Source.DEVICE_TABLE}})
        for gpu in inventory.gpus
    )
    bus_only = inventory.model_copy(update={"gpus": bare, "pairs": (), "driver": Driver()})
    assert NO_DRIVER in plan(bus_only, load({})).warnings
    assert NO_DRIVER not in plan(inventory, load({})).warnings


def test_a_recording_without_uuids_is_planned_with_a_note() -> None:
    inventory = INVENTORIES["2x3090-pcie"]
    nameless = tuple(gpu.model_copy(update={"uuid": None}) for gpu in inventory.gpus)
    assert NO_UUID in plan(inventory.model_copy(update={"gpus": nameless}), load({})).warnings
    assert NO_UUID not in plan(inventory, load({})).warnings


def test_a_share_of_a_card_is_planned_with_a_note() -> None:
    inventory = INVENTORIES["1x3090"]
    gpu = inventory.gpus[0].model_copy(update={"name": "NVIDIA A10-24Q", "pci_device_id": "2236"})
    made = plan(inventory.model_copy(update={"gpus": (gpu,)}), load({}))
    assert [note for note in made.warnings if "(vGPU)" in note]


HELD: list[tuple[str, dict[int, int], str]] = [
    # machine, MiB held by card, words
    ("1x3090", {0: 22_000}, "these very cards, once those programs have ended"),
    ("2x3090-pcie", {0: 22_000, 1: 21_000}, "these very cards, once those programs have ended"),
    ("laptop-8gb", {0: 7_000}, "What would fit: one card with "),  # too small in any case
    ("1x3090", {0: 99_000}, "0.0 GiB free of 23.6"),  # more than there is: a damaged reading
]


@pytest.mark.parametrize(("machine", "held", "words"), HELD)
def test_memory_that_others_hold_is_told_with_what_to_do(machine: str, held: dict[int, int], words: str) -> None:
    inventory = INVENTORIES[machine]
    gpus = tuple(gpu.model_copy(update={"memory_used_mib": held[gpu.index]}) for gpu in inventory.gpus)
    (refusal,) = plan(inventory.model_copy(update={"gpus": gpus}), load({})).refusals
    assert refusal.code == "too-little-memory"
    assert words in refusal.text
    assert "held by other programs" in refusal.text
    assert "-" not in refusal.text.replace("int4-fast", "").replace("nvidia-smi", "")  # no card has less than nothing


def test_what_would_fit_does_not_count_what_others_hold_now() -> None:
    inventory = INVENTORIES["laptop-8gb"]
    free, held = (
        plan(inventory.model_copy(update={"gpus": (gpu,)}), load({})).refusals[0].text.split("What would fit: ")[1]
        for gpu in (inventory.gpus[0], inventory.gpus[0].model_copy(update={"memory_used_mib": 6_000}))
    )
    assert held == free


def test_a_card_that_no_table_knows_is_planned_with_a_word_about_it() -> None:
    inventory = INVENTORIES["1x3090"]
    gpu = inventory.gpus[0].model_copy(update={"name": "NVIDIA GeForce RTX 9090", "pci_device_id": "ffff"})
    host = plan(inventory.model_copy(update={"gpus": (gpu,)}), load({}))
    assert host.status == "planned"
    assert any("RTX 9090" in warning and "not in the device table" in warning for warning in host.warnings)
    assert not any("device table" in warning for warning in plan(inventory, load({})).warnings)


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        ({"driver": Driver(loaded="535.183.01")}, {}, "driver 535.183.01 is older than 580"),
        ({"driver": Driver(loaded="535.183.01")}, {"driver_branch": 580}, None),
        ({"driver": Driver(loaded="572.83"), "wsl2": True}, {}, "update the Windows driver"),
        ({"driver": Driver(loaded="610.43")}, {}, None),
        ({"driver": Driver()}, {}, None),
        ({"os": OperatingSystem(id="rhel", version_id="9.6", pretty_name="RHEL 9.6")}, {}, "RHEL 9.6 is not supported"),
        ({"os": OperatingSystem(id="ubuntu", version_id="22.04")}, {}, "ubuntu is not supported: use debian 12, 13"),
        ({"os": OperatingSystem(id="ubuntu", version_id="24.04", architecture="aarch64")}, {}, None),
        ({"os": OperatingSystem(architecture="ppc64le")}, {}, "the processor is ppc64le"),
        ({"os": OperatingSystem()}, {}, None),  # a recording that does not say
    ],
)
def test_a_plan_says_what_keeps_it_from_being_deployed(
    changes: dict[str, Any], settings: dict[str, Any], words: str | None
) -> None:
    chosen = load({f"qwen_{name}": value for name, value in settings.items()})
    host = plan(INVENTORIES["1x4090"].model_copy(update=changes), chosen)
    said = [warning for warning in host.warnings if warning.startswith("not to be deployed like this")]
    assert host.status == "planned"
    assert len(said) == (words is not None)
    assert words is None or words in said[0]


def test_an_override_that_costs_nothing_is_not_said_to_cost() -> None:
    chosen = only(planned("2x3090-pcie"))
    same = planned("2x3090-pcie", tensor_parallel=chosen.tp, data_parallel=1)
    assert not any("the planner would choose" in warning for warning in same.warnings)
    assert any("scores 1 % less" in warning for warning in planned("2x3090-pcie", tensor_parallel=1).warnings)

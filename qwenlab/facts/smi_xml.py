"""`nvidia-smi -q -x`: the full report (DTD v10 to v13)."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from qwenlab.facts import smi_values
from qwenlab.facts.readings import (
    FABRIC_FAILED,
    REPAIR_FAILED,
    REPAIR_PENDING,
    CardReading,
    Lost,
    MigReading,
    ParseError,
    Reading,
)
from qwenlab.pci_address import bus_id

_OPENING, _CLOSING = "<nvidia_smi_log", "</nvidia_smi_log>"


def is_xml(text: str) -> bool:
    """Whether the text is, or holds, the XML report."""
    return _OPENING in text


def parse_xml(text: str) -> Reading:
    """Read the report. Words instead of it become `failure` or `lost`; raises `ParseError` for a cut or odd text."""
    lost = smi_values.lost_handles(text)
    start = min((place for mark in ("<?xml", _OPENING) if (place := text.find(mark)) >= 0), default=-1)
    if start < 0:
        failure = smi_values.failure(text)
        if failure is None and not lost:
            raise ParseError("nvidia-smi -q -x: neither XML nor a known message")
        return Reading(failure=failure, lost=lost)
    end = text.find(_CLOSING, start)
    body = text[start : end + len(_CLOSING)] if end >= 0 else text[start:]  # a prompt or a second report may follow
    if "<!ENTITY" in body:
        raise ParseError("nvidia-smi -q -x: the report declares entities")
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError) as error:
        raise ParseError(f"nvidia-smi -q -x: {error}") from None
    if root.tag != "nvidia_smi_log":
        raise ParseError(f"nvidia-smi -q -x: the report is a <{root.tag}>")
    return reading_of(root, lost)


def reading_of(root: ElementTree.Element, lost: tuple[Lost, ...]) -> Reading:
    """What the report's tree says, beside the cards that nvidia-smi could not open."""
    cards = tuple(_card(index, gpu) for index, gpu in enumerate(root.findall("gpu")))
    attached = smi_values.whole(root.findtext("attached_gpus"))
    damage: tuple[str, ...] = ()
    if attached is None:
        damage = ("the report does not say how many cards are attached",)
    elif attached not in (len(cards), len(cards) + len(lost)):  # releases differ in whether they count a lost one
        damage = (f"the report says {attached} cards are attached and describes {len(cards)}",)
    return Reading(
        cards=cards,
        driver=smi_values.word(root.findtext("driver_version") or root.findtext("kmd_version")),
        cuda=_version(root.findtext("cuda_version") or root.findtext("cuda_umd_version")),
        damage=damage,
        lost=lost,
    )


def _card(index: int, gpu: ElementTree.Element) -> CardReading:
    def value(path: str) -> str | None:
        return gpu.findtext(path)

    def first(*paths: str) -> str | None:
        return next((text for path in paths if (text := gpu.findtext(path)) and not smi_values.missing(text)), None)

    power = ("gpu_power_readings", "power_readings")
    device = (value("pci/pci_device_id") or "").strip().lower().removeprefix("0x")
    total = value("fb_memory_usage/total")
    return CardReading(
        index=index,
        uuid=smi_values.word(value("uuid")),
        bus_id=bus_id(gpu.get("id")) or bus_id(value("pci/pci_bus_id")),
        name=smi_values.word(value("product_name")),
        device_id=device[:4] if re.fullmatch(r"[0-9a-f]{4}10de", device) else None,
        architecture=smi_values.word(value("product_architecture")),
        memory_total_mib=smi_values.whole(total),
        memory_used_mib=smi_values.whole(value("fb_memory_usage/used")),
        memory_reserved_mib=smi_values.whole(value("fb_memory_usage/reserved")),
        memory_unified=True if total and "not supported" in total.lower() else None,
        bar1_total_mib=smi_values.whole(value("bar1_memory_usage/total")),
        bar1_used_mib=smi_values.whole(value("bar1_memory_usage/used")),
        display_active=smi_values.switch(value("display_active")),
        display_attached=smi_values.switch(first("display_attached", "display_mode")),
        ecc_enabled=smi_values.switch(value("ecc_mode/current_ecc")),
        mig_enabled=smi_values.switch(value("mig_mode/current_mig")),
        compute_mode=smi_values.word(value("compute_mode")),
        mig_instances=tuple(_mig(item) for item in gpu.findall("mig_devices/mig_device")),
        generation_now=smi_values.whole(value("pci/pci_gpu_link_info/pcie_gen/current_link_gen")),
        generation_max=smi_values.whole(
            first("pci/pci_gpu_link_info/pcie_gen/max_device_link_gen", "pci/pci_gpu_link_info/pcie_gen/max_link_gen")
        ),
        generation_slot=smi_values.whole(value("pci/pci_gpu_link_info/pcie_gen/max_host_link_gen")),
        width_now=smi_values.whole(value("pci/pci_gpu_link_info/link_widths/current_link_width")),
        width_max=smi_values.whole(value("pci/pci_gpu_link_info/link_widths/max_link_width")),
        limit_w=smi_values.number(
            first(*(f"{group}/{name}" for group in power for name in ("current_power_limit", "power_limit")))
        ),
        default_w=smi_values.number(first(*(f"{group}/default_power_limit" for group in power))),
        min_w=smi_values.number(first(*(f"{group}/min_power_limit" for group in power))),
        max_w=smi_values.number(first(*(f"{group}/max_power_limit" for group in power))),
        persistence=smi_values.switch(value("persistence_mode")),
        replays=smi_values.whole(value("pci/replay_counter")),
        processes=len(gpu.findall("processes/process_info")),
        fabric=_fabric(gpu),
        memory_repair=_memory_repair(gpu),
        licence=smi_values.word(
            first("vgpu_software_licensed_product/license_status", "grid_licensed_product/license_status")
        ),
        fault=_fault(gpu),
    )


def _fabric(gpu: ElementTree.Element) -> str | None:
    """The state of the card's registration with its NVSwitches; completed may still mean that it failed."""
    state, status = (smi_values.word(gpu.findtext(f"fabric/{name}")) for name in ("state", "status"))
    return FABRIC_FAILED if state == "Completed" and status not in (None, "Success") else state


def _fault(gpu: ElementTree.Element) -> str | None:
    """A fault named by the fields that every healthy card fills; N/A and "Not Supported" are no fault."""
    paths = ("product_name", "uuid", "fb_memory_usage/total", "performance_state", "persistence_mode", "serial")
    found = (smi_values.fault(gpu.findtext(path)) for path in paths)
    recovery = gpu.findtext("gpu_recovery_action") or ""
    needs = f"needs recovery: {recovery.strip()}" if re.search(r"reboot|reset|drain", recovery, re.IGNORECASE) else None
    return next((word for word in (*found, needs) if word), None)


def _memory_repair(gpu: ElementTree.Element) -> str | None:
    """Row remapping (Ampere and later), page retirement (before)."""
    pending = (
        "remapped_rows/remapped_row_pending",
        "retired_pages/pending_retirement",
        "retired_pages/pending_blacklist",
    )
    if smi_values.switch(gpu.findtext("remapped_rows/remapped_row_failure")):
        return REPAIR_FAILED
    return REPAIR_PENDING if any(smi_values.switch(gpu.findtext(path)) for path in pending) else None


def _mig(item: ElementTree.Element) -> MigReading:
    return MigReading(
        profile=smi_values.word(item.findtext("profile")) or "",
        uuid=smi_values.word(item.findtext("uuid")),
        memory_mib=smi_values.whole(item.findtext("fb_memory_usage/total")),
    )


def _version(text: str | None) -> str | None:
    word = smi_values.word(text)
    return word if word and re.fullmatch(r"[0-9]+\.[0-9]+", word) else None

"""`nvidia-smi -q`: the full report as indented text. It says what `-q -x` says: it is turned into that and so read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from qwenlab.facts import smi_values
from qwenlab.facts.readings import ParseError, Reading
from qwenlab.facts.smi_xml import reading_of
from qwenlab.facts.terminal import plain

_TITLE = re.compile(r"^=+NVSMI LOG=+\s*$", re.MULTILINE)
_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_LINE = re.compile(r"^(?P<indent> +)(?P<name>\S.*?)(?:\s+:(?:\s+(?P<value>.*?))?)?\s*$")
_HEAD = re.compile(r"^(?P<name>\S.*?)\s+: (?P<value>.*?)\s*$")
# Where the XML report names a value otherwise than the words of the text make it: by the end of the path.
_RENAMED = {
    "gpu_uuid": "uuid",
    "mig_mode/current": "mig_mode/current_mig",
    "ecc_mode/current": "ecc_mode/current_ecc",
    "pci/device_id": "pci/pci_device_id",
    "pci/bus_id": "pci/pci_bus_id",
    "pci/gpu_link_info": "pci/pci_gpu_link_info",
    "pci_gpu_link_info/pcie_generation": "pci_gpu_link_info/pcie_gen",
    "pci_gpu_link_info/link_width": "pci_gpu_link_info/link_widths",
    "pcie_gen/max": "pcie_gen/max_link_gen",
    "pcie_gen/current": "pcie_gen/current_link_gen",
    "pcie_gen/device_max": "pcie_gen/max_device_link_gen",
    "pcie_gen/host_max": "pcie_gen/max_host_link_gen",
    "link_widths/max": "link_widths/max_link_width",
    "link_widths/current": "link_widths/current_link_width",
    "pci/replays_since_reset": "pci/replay_counter",
    "remapped_rows/pending": "remapped_rows/remapped_row_pending",
    "remapped_rows/remapping_failure_occurred": "remapped_rows/remapped_row_failure",
    "retired_pages/pending_page_blacklist": "retired_pages/pending_blacklist",
    "processes/process_id": "processes/process_info",
}


def is_report(text: str) -> bool:
    """Whether the text has the report's title."""
    return _TITLE.search(text) is not None


def parse_report(text: str) -> Reading:
    """Read the report. Raises `ParseError` where it has no title."""
    text = plain(text)
    title = _TITLE.search(text)
    if title is None:
        raise ParseError("nvidia-smi -q: the report's title is missing")
    root = ElementTree.Element("nvidia_smi_log")
    above: list[tuple[int, ElementTree.Element, str]] = []
    for line in text[title.end() :].split("\n"):
        if card := _GPU.match(line):
            gpu = ElementTree.SubElement(root, "gpu", {"id": card.group(1)})
            above = [(0, gpu, "gpu")]
        elif above and (match := _LINE.match(line)):
            _add(above, len(match["indent"]), match["name"], match["value"])
        elif not above and (match := _HEAD.match(line)):
            ElementTree.SubElement(root, _tag(match["name"])).text = match["value"]
    return reading_of(root, smi_values.lost_handles(text))


def _add(above: list[tuple[int, ElementTree.Element, str]], indent: int, name: str, value: str | None) -> None:
    while above[-1][0] >= indent:
        above.pop()
    parent, outer = above[-1][1], above[-1][2]
    tag = _tag(name)
    tag = _RENAMED.get(f"{outer}/{tag}", _RENAMED.get(tag, tag)).rpartition("/")[2]
    element = ElementTree.SubElement(parent, tag)
    element.text = value
    if value is None:
        above.append((indent, element, tag))


def _tag(name: str) -> str:
    """ "FB Memory Usage" is fb_memory_usage there."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "_"

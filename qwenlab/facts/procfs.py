"""`/proc/driver/nvidia/gpus/*/information`: the kernel module's own list of cards."""

from __future__ import annotations

import re

from qwenlab.facts.readings import CardReading, Reading
from qwenlab.facts.smi_values import word
from qwenlab.pci_address import bus_id


def parse_proc_gpus(text: str) -> Reading:
    """Read the concatenated files; a block starts with `Model:`. Never fails: unknown lines say nothing."""
    cards = []
    for index, block in enumerate(re.split(r"^(?=Model:)", text, flags=re.MULTILINE)[1:]):
        values = dict(re.findall(r"^([A-Z][A-Za-z ]+):[ \t]+(\S.*?)\s*$", block, re.MULTILINE))
        uuid = values.get("GPU UUID", "")
        cards.append(
            CardReading(
                index=index,
                name=word(values.get("Model")),
                uuid=uuid if re.fullmatch(r"GPU-[0-9a-fA-F-]{36}", uuid) else None,
                bus_id=bus_id(values.get("Bus Location")),
            )
        )
    return Reading(cards=tuple(cards))

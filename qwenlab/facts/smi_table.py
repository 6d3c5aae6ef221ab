"""The box that a plain `nvidia-smi` prints, in its three generations, and `nvidia-smi -L`.

The box is the last resort when the XML report is missing: it cuts long names, and nothing but its own end tells that
it is complete, so a box without an end is named in `damage` or `notes`.
"""

from __future__ import annotations

import re
from dataclasses import replace

from qwenlab.facts import quoting, smi_values
from qwenlab.facts.readings import EXCLUSIVE, PROHIBITED, CardReading, MigReading, ParseError, Reading
from qwenlab.facts.terminal import plain
from qwenlab.pci_address import bus_id

_BANNER = re.compile(
    r"NVIDIA-SMI\s+(?P<smi>\S+)\s+(?:Driver|KMD)\s+Version:\s*(?P<driver>\S+)"
    r"(?:\s+CUDA(?:\s+UMD)?\s+Version:\s*(?P<cuda>\S+))?"
)
_VERSION = re.compile(r"^[0-9]+(?:\.[0-9]+)+$")
# A Jetson's own GPU sits on no PCI bus: "N/A" stands in its address's place.
_CARD = re.compile(
    r"^\|\s*(?P<index>[0-9]{1,3})\s+(?P<name>\S.*?)\s+(?P<persistence>On|Off|N/A|ERR!)\s*\|"
    r"\s*(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]|N/A)\s+(?P<display>On|Off|N/A|ERR!)\s*\|"
    r"\s*(?P<ecc>\S.*?)\s*\|"
)
_CARD_START = re.compile(r"^\|\s{1,4}[0-9]{1,3}\s{2}\S")
_USAGE = re.compile(r"/\s*(?P<limit>[0-9]+W|N/A|ERR!)\s*\|\s*(?P<used>\S.*?)\s*/\s*(?P<total>\S.*?)\s*\|")
_USAGE_MISSING = re.compile(r"/\s*(?P<limit>[0-9]+W|N/A|ERR!)\s*\|\s*(?P<cell>[^|]*?)\s*\|")
_USE_UNKNOWN = re.compile(r"/\s*N/A\s*\|[^|]*\|\s*N/A\s")
_FRAMED = re.compile(r"^[ \t]*(?:[#>*]|//)?[ \t]*([|+][^\n]*)$", re.MULTILINE)
_MODES = ((PROHIBITED, PROHIBITED), ("E. Process", EXCLUSIVE))
_MIG_MODE = re.compile(r"\|\s*(Enabled\*?|Disabled\*?|N/A|ERR!)\s*\|\s*$")
_MIG_ROW = re.compile(
    r"^\|\s*(?P<gpu>[0-9]{1,3})\s+(?P<gi>[0-9]{1,3})\s+(?P<ci>[0-9]{1,3})\s+(?P<dev>[0-9]{1,3})\s*\|"
    r"\s*[0-9]+MiB\s*/\s*(?P<total>[0-9]+)MiB"
)
_ROWS = 3  # a card's rows, two before MIG was known
_BORDER = re.compile(r"^\+[-=+]+\+\s*$")
_WHOLE_BORDER = re.compile(r"^\+[-=]+\+\s*$")  # without columns: the upper border of a box
# As `-L` writes it, and without the UUID as reports of an environment do (PyTorch's collect_env "GPU 0: NVIDIA A100",
# LMDeploy's and SGLang's "GPU 0,1: NVIDIA A100").
_LIST_CARD = re.compile(
    r"^GPU ?(?P<index>[0-9]{1,3}(?:, ?[0-9]{1,3})*): (?P<name>.*?)(?: \(UUID: (?P<uuid>GPU-[^\s)]*)\))?\s*$"
)
_CARD_NAME = re.compile(r"^(?:NVIDIA|GeForce|Tesla|Quadro|TITAN|GRID|RTX|CMP|[ABHLT]\d)")
_LIST_SIZE = re.compile(r",\s*(?P<size>[0-9]+) MiB\b.*$")
_LIST_DRIVER = re.compile(r"^\s*Nvidia driver version\s*: (\S+)", re.IGNORECASE)
_LIST_BESIDE = re.compile(r"^\s*(?:Link [0-9]+: |GPU models and configuration|\S*[$#] nvidia-smi)")
_UUID = re.compile(r"GPU-[0-9A-Fa-f-]+")  # people make theirs unreadable before they publish it
_LIST_MIG = re.compile(r"^\s+MIG (?P<profile>\S+)\s+Device\s+[0-9]+: \(UUID: (?P<uuid>MIG-[0-9A-Za-z/-]+)\)")


def is_table(text: str) -> bool:
    """Whether the text has the box's banner."""
    return _BANNER.search(plain(text)) is not None


def is_list(text: str) -> bool:
    """Whether a line of the text is a card of `nvidia-smi -L`."""
    return any(_listed(line) for line in text.split("\n"))


def parse_table(text: str) -> Reading:
    """Read the box. Words instead of a box become `failure` or `lost`; raises `ParseError` for anything else."""
    text = _unframed(plain(text))
    lost = smi_values.lost_handles(text)
    banner = _BANNER.search(text)
    if banner is None:
        failure = smi_values.failure(text)
        if failure is None and not lost:
            words = " ".join(text.split())
            raise ParseError(f"nvidia-smi: neither a table nor a known message, but {words[:100]!r}")
        library = re.search(r"NVML library version:\s*([0-9.]+)", text)
        return Reading(failure=failure, lost=lost, library=library.group(1) if library else None)
    lines = text.split("\n")
    cards, damage = _cards(lines)
    indices = [card.index for card in cards]
    if len(set(indices)) != len(indices):
        raise ParseError("nvidia-smi: two cards with one index")
    if indices and indices != list(range(len(indices))):
        damage.append(f"the table lists cards {indices}: some are missing")
    notes = ["the table ends before its process list"] if "Processes:" not in text else []
    mig = [(int(match["gpu"]), int(match["total"])) for line in lines if (match := _MIG_ROW.match(line))]
    cards = [
        replace(card, mig_instances=tuple(MigReading("", memory_mib=total) for gpu, total in mig if gpu == card.index))
        for card in cards
    ]
    cuda = banner["cuda"]
    return Reading(
        cards=tuple(cards),
        driver=_version(banner["driver"]),
        cuda=_version(cuda),
        damage=tuple(damage),
        notes=tuple(notes),
        lost=lost,
    )


def _unframed(text: str) -> str:
    """The box at the margin, however it was quoted: indented, behind `#`, `>`, `*` or `//`, or behind a log's time."""
    return _FRAMED.sub(r"\1", quoting.box(text))


def parse_list(text: str) -> Reading:
    """Read `nvidia-smi -L`: names, UUIDs and MIG profiles. Raises `ParseError` when no line is a card."""
    cards: list[CardReading] = []
    damage: list[str] = []
    driver = None
    for line in text.split("\n"):
        if found := _listed(line):
            cards += found
        elif match := _LIST_DRIVER.match(line):
            driver = _version(match.group(1))
        elif (match := _LIST_MIG.match(line)) and cards:
            mig = MigReading(match["profile"], uuid=match["uuid"])
            cards[-1] = replace(cards[-1], mig_enabled=True, mig_instances=(*cards[-1].mig_instances, mig))
        elif line.strip() and not smi_values.lost_handles(line) and not _LIST_BESIDE.match(line):
            damage.append(f"nvidia-smi -L: {line.strip()[:80]!r} is no card")
    lost = smi_values.lost_handles(text)
    if not cards:
        failure = smi_values.failure(text)
        if failure is None and not lost:
            raise ParseError("nvidia-smi -L: no card listed")
        return Reading(failure=failure, lost=lost)
    indices = [card.index for card in cards]
    if len(set(indices)) != len(indices):
        raise ParseError("nvidia-smi -L: two cards with one index")
    return Reading(cards=tuple(cards), driver=driver, damage=tuple(damage), lost=lost)


def _listed(line: str) -> list[CardReading]:
    """The cards that a line of the list names: one, or several of a kind."""
    match = _LIST_CARD.match(line)
    if match is None or "(UUID" in match["name"] or not (match["uuid"] or _CARD_NAME.match(match["name"])):
        return []
    uuid = match["uuid"] if match["uuid"] and _UUID.fullmatch(match["uuid"]) else None
    size = _LIST_SIZE.search(match["name"])
    name = _LIST_SIZE.sub("", match["name"])
    total = int(size["size"]) if size else None
    return [
        CardReading(index=int(index), name=name, uuid=uuid, memory_total_mib=total)
        for index in match["index"].split(",")
    ]


def _cards(lines: list[str]) -> tuple[list[CardReading], list[str]]:
    cards: list[CardReading] = []
    damage: list[str] = []
    for block in _blocks(lines, damage):
        match = _CARD.match(block[0]) if block else None
        if match:
            cards.append(_card(match, block[1:], damage))
        else:
            damage.append(
                f"a card's row is missing or unreadable: {block[0].strip()[:60]!r}" if block else "an empty row"
            )
        damage += [f"two cards in one row: {line[:60]!r}" for line in block[1:] if _CARD_START.match(line)]
        if sum(bool(_USAGE_MISSING.search(line)) for line in block[1:]) > 1:
            damage.append("two rows of use in one card's place: another card's first row is missing")
        if len(block) > _ROWS:
            damage.append(f"{len(block)} rows in one card's place: a border or a card is missing")
    if not cards:
        damage.append("the table lists no card")
    return cards, damage


def _blocks(lines: list[str], damage: list[str]) -> list[list[str]]:
    """The rows between two borders, one card each: after the heading's "=" line, up to the table's end."""
    start = next((i for i, line in enumerate(lines) if line.startswith("|==")), None)
    if start is None:
        damage.append("the table has no heading")
        start = -1
    blocks: list[list[str]] = [[]]
    border = ""
    for line in lines[start + 1 :]:
        if "MIG devices:" in line or "Processes:" in line:
            if len(blocks) > 1 and not blocks[-1] and _WHOLE_BORDER.match(border):
                blocks.pop()  # made by the next box's upper border
            break
        if not line.startswith(("|", "+")):
            break
        if _BORDER.match(line):
            blocks.append([])
            border = line
        elif line.startswith("|"):
            blocks[-1].append(line)
        else:
            damage.append(f"a broken border {line[:40]!r}")
    if blocks[-1]:
        damage.append("the table has no closing border")
        return blocks
    return blocks[:-1]


def _card(match: re.Match[str], following: list[str], damage: list[str]) -> CardReading:
    where = f"card {match['index']}"
    usage_line = following[0] if following else ""
    total = used = limit = None
    if usage := _USAGE.search(usage_line):
        limit, used, total = usage["limit"], usage["used"], usage["total"]
    elif usage := _USAGE_MISSING.search(usage_line):
        limit = usage["limit"]
    else:
        damage.append(f"{where}: no memory row")
    mig_line = next((line for line in following[1:] if line.startswith("|")), "")
    mig = _MIG_MODE.search(mig_line)
    sensors, _, memory = usage_line.strip("|").partition("|")
    told = (match[0], memory.partition("|")[0], mig_line)
    fault = next((word for word in map(smi_values.fault, told) if word), None)
    if fault is None and match["display"] == "N/A" and _USE_UNKNOWN.search(usage_line):
        fault = smi_values.fault(sensors)
    name = match["name"]
    return CardReading(
        index=int(match["index"]),
        name=None if smi_values.missing(name) else name,
        bus_id=bus_id(match["bus"]),
        persistence=smi_values.switch(match["persistence"]),
        display_active=smi_values.switch(match["display"]),
        ecc_enabled=True if re.fullmatch(r"[0-9]+", match["ecc"]) else smi_values.switch(match["ecc"]),
        memory_total_mib=smi_values.whole(total),
        memory_used_mib=smi_values.whole(used),
        memory_unified=True if usage_line and "Not Supported" in usage_line else None,
        limit_w=smi_values.number((limit or "").replace("W", " W")),
        mig_enabled=smi_values.switch(mig.group(1).rstrip("*")) if mig else None,
        compute_mode=next((mode for words, mode in _MODES if words in usage_line), None),
        sensor_fault=smi_values.fault(sensors),
        fault=fault,
    )


def _version(text: str | None) -> str | None:
    return text if text and _VERSION.match(text) else None

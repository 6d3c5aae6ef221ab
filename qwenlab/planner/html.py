"""A plan as one self-contained page: topology, stacked memory bars, every setting with its reason, what lost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from math import cos, pi, sin

from jinja2 import Environment, StrictUndefined

from qwenlab.host_inventory import Gpu, HostInventory
from qwenlab.planner.memory_bar import FREE, PARTS, segments
from qwenlab.planner.plan import EnginePlan, HostPlan
from qwenlab.planner.rules.links import bridged, peer_access
from qwenlab.planner.topology import card_name, form, headline, link_word, model_words, seats, speed_words, value_of

TEMPLATE = "plan.html.j2"
ENGINE_COLOURS = ("#3f6fb5", "#4b9a5f", "#c07f2d", "#8c64b0", "#b5544d", "#3d9aa1", "#8a7a3a", "#6a6f78")
IDLE_COLOUR = "#c9ced4"
WIDTH, CARD_WIDTH, CARD_HEIGHT = 860, 172, 58
HEIGHTS = ((2, 120), (8, 380))  # up to so many cards around an ellipse, so high a drawing
COLUMNS, ROW_HEIGHT = 4, 92  # of the grid for more cards


@dataclass(frozen=True)
class Box:
    """One card in the drawing, by its centre."""

    gpu: Gpu
    x: float
    y: float
    colour: str
    name: str
    role: str


@dataclass(frozen=True)
class Line:
    """One link in the drawing."""

    x1: float
    y1: float
    x2: float
    y2: float
    label: str
    kind: str


def page(plan: HostPlan, inventory: HostInventory) -> str:
    """The page's text; it loads nothing from anywhere."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["setting"] = lambda name, engine: _setting(engine, name)
    environment.globals.update(
        card_name=card_name,
        form=form,
        model_words=model_words,
        seats=seats,
        segments=segments,
        speed_words=speed_words,
    )
    template = environment.from_string(files("qwenlab.planner").joinpath(TEMPLATE).read_text(encoding="utf-8"))
    boxes = _boxes(plan, inventory)
    return template.render(
        plan=plan,
        inventory=inventory,
        headline=headline(plan),
        boxes=boxes,
        lines=_lines(boxes, inventory),
        width=WIDTH,
        height=_height(len(boxes)),
        card_width=CARD_WIDTH,
        card_height=CARD_HEIGHT,
        parts=(*PARTS, FREE),
        colours={engine.name: _colour(index) for index, engine in enumerate(plan.engines)},
        plan_json=plan.model_dump_json(by_alias=True, indent=2),
    )


def _colour(index: int) -> str:
    return ENGINE_COLOURS[index % len(ENGINE_COLOURS)]


def _boxes(plan: HostPlan, inventory: HostInventory) -> tuple[Box, ...]:
    """Cards on an ellipse, engine by engine, so that links within an engine are short."""
    used = {seat.uuid: (index, seat) for index, engine in enumerate(plan.engines) for seat in seats(engine)}
    order = {uuid: place for place, uuid in enumerate(used)}
    gpus = sorted(inventory.gpus, key=lambda gpu: (order.get(gpu.uuid or "", len(order)), gpu.index))
    boxes = []
    for place, gpu in enumerate(gpus):
        x, y = _position(place, len(gpus))
        index, seat = used.get(gpu.uuid or "", (None, None))
        colour = IDLE_COLOUR if index is None else _colour(index)
        role = f"{seat.engine}: {seat.role}" if seat else "idle"
        boxes.append(Box(gpu, x, y, colour, (gpu.name or "?").removeprefix("NVIDIA ").removeprefix("GeForce "), role))
    return tuple(boxes)


def _height(cards: int) -> int:
    return next((height for most, height in HEIGHTS if cards <= most), -(-cards // COLUMNS) * ROW_HEIGHT)


def _position(place: int, count: int) -> tuple[float, float]:
    width, height = WIDTH, _height(count)
    if count == 1:
        return width / 2, height / 2
    if count > HEIGHTS[-1][0]:
        row, column = divmod(place, COLUMNS)
        return (column + 0.5) * width / COLUMNS, (row + 0.5) * ROW_HEIGHT
    angle = pi + 2 * pi * place / count
    return (
        round(width / 2 + (width - CARD_WIDTH - 20) / 2 * cos(angle), 1),
        round(height / 2 + (height - CARD_HEIGHT - 20) / 2 * sin(angle), 1),
    )


def _lines(boxes: tuple[Box, ...], inventory: HostInventory) -> tuple[Line, ...]:
    lines = []
    crowded = len(boxes) > 4
    for place, a in enumerate(boxes):
        for b in boxes[place + 1 :]:
            pair = inventory.pair(a.gpu.index, b.gpu.index)
            kind = "bridge" if bridged(pair) else "peer" if peer_access(pair) else "host"
            # many cards make a hairball: what runs through host memory is then left to the table
            if crowded and kind == "host":
                continue
            lines.append(Line(a.x, a.y, b.x, b.y, "" if crowded else link_word(pair), kind))
    return tuple(lines)


def _setting(engine: EnginePlan, name: str) -> str:
    value = value_of(engine, name)
    return json.dumps(value) if isinstance(value, (dict, list, bool)) else str(value)

"""What the host around the cards asks for: WSL2, little RAM, power limits, a desktop, a watchdog."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import Version

from qwenlab.planner.plan import Evidence
from qwenlab.planner.rules.context import Context
from qwenlab.planner.rules.model import Effect, Rule, Topic, always, sets_env

WATCHDOG = Version("0.33.0")
STALL_SECONDS = 300
LOADER_ROOM_GIB = 28.0


@dataclass(frozen=True)
class PowerAdvice:
    """Where a card stops gaining from watts; `floor_w` is the lowest limit that the card accepts, when known."""

    name: str
    watts: int
    text: str
    source: str


POWER = (
    PowerAdvice(
        "3090",
        290,
        "decode stops gaining at about 290 W, prefill at 250 W, and with TP=2 decode is flat from 220 W on",
        "noonghunna/club-3090 (power-cap sweep); syv-ai/HyperQwen docs/reproductions",
    ),
    PowerAdvice("3090 Ti", 200, "with TP=2 it is flat from about 200 W on", "noonghunna/club-3090 (power-cap sweep)"),
    PowerAdvice("4090", 260, "decode is as fast at 260 W; above 400 W nothing gains", "noonghunna/club-3090"),
    PowerAdvice("5090", 400, "400 W is the lowest limit that the card accepts and costs 5 %", "noonghunna/club-3090"),
    PowerAdvice("3060", 100, "decode with TP=2 is the same from 100 to 170 W", "syv-ai/HyperQwen docs/reproductions"),
)


def advised_watts(name: str) -> float | None:
    """The power limit advised for a card of this product name; None where nothing was measured."""
    words = set(name.split())
    if "Laptop" in words:
        return None
    return next((float(advice.watts) for advice in POWER if _named(advice.name, words)), None)


def _advice(context: Context) -> tuple[PowerAdvice, ...]:
    words = [set(card.name.split()) for card in context.cards]
    laptop = any("Laptop" in name for name in words)
    return tuple(advice for advice in POWER if not laptop and any(_named(advice.name, name) for name in words))


def _named(model: str, words: set[str]) -> bool:
    """Whether a product name's words are this very model: a 3090 is not a 3090 Ti."""
    wanted = set(model.split())
    return wanted <= words and not (words & {"Ti", "SUPER"}) - wanted


def _power(context: Context) -> Effect:
    found = _advice(context)
    text = "; ".join(f"RTX {advice.name}: {advice.text}" for advice in found)
    return Effect(says={"text": text})


def _room(context: Context) -> bool:
    ram = context.inventory.ram_total_gib
    return ram is not None and ram < LOADER_ROOM_GIB


def _desktop(context: Context) -> Effect:
    names = ", ".join(
        f"{card.name} ({card.in_use_gib:.1f} GiB taken now)" for card in context.cards if card.display_active
    )
    return Effect(warning=True, says={"cards": names})


RULES = (
    Rule(
        id="no-usage-statistics",
        topic=Topic.HOST,
        when="always",
        applies=always,
        then=sets_env(VLLM_NO_USAGE_STATS="1"),
        because="vLLM reports hardware and configuration to its makers by default; a host of yours tells nobody",
        source="vLLM 0.33.0 usage/usage_lib.py",
        evidence=Evidence.DERIVED,
        sets=("VLLM_NO_USAGE_STATS",),
    ),
    Rule(
        id="pinned-memory-on-wsl2",
        topic=Topic.HOST,
        when="WSL2",
        applies=lambda c: c.inventory.wsl2,
        then=sets_env(VLLM_WSL2_ENABLE_PIN_MEMORY="1"),
        because="vLLM's second model runner, which serves this model, reads pinned host buffers; on WSL2 they are off "
        "unless asked for",
        source="syv-ai/HyperQwen single-user launcher; vLLM 0.33.0 platforms/cuda.py is_pin_memory_available",
        evidence=Evidence.FIELD_REPORT,
        sets=("VLLM_WSL2_ENABLE_PIN_MEMORY",),
    ),
    Rule(
        id="stall-watchdog",
        topic=Topic.HOST,
        when="vLLM 0.33 and later",
        applies=lambda c: c.vllm >= WATCHDOG,
        then=lambda c: Effect(
            args={"watchdog-config": {"dump_dir": f"{c.home}/stalls", "timeout": STALL_SECONDS}},
            says={"seconds": STALL_SECONDS, "folder": f"{c.home}/stalls"},
        ),
        because="an engine that makes no step for {seconds} s writes the stacks of all its threads to {folder}; "
        "without that a hang leaves nothing to look at",
        source="vLLM 0.33.0 utils/watch_dog.py",
        evidence=Evidence.DERIVED,
        sets=("watchdog-config",),
    ),
    Rule(
        id="little-host-memory",
        topic=Topic.HOST,
        when="less than 28 GiB of host memory",
        applies=_room,
        then=lambda c: Effect(
            args={"load-format": "safetensors", "safetensors-load-strategy": "lazy"},
            warning=True,
            says={"ram": f"{c.inventory.ram_total_gib:.0f}"},
        ),
        because="{ram} GiB of host memory: weights are mapped and read page by page, never copied whole; hosts of 28 "
        "GiB were killed while loading (exit 137), so add swap or close other programs during the first start",
        source="noonghunna/club-3090 (host RAM); syv-ai/HyperQwen docs/gotchas.md 41, #39",
        evidence=Evidence.FIELD_REPORT,
        sets=("load-format", "safetensors-load-strategy"),
    ),
    Rule(
        id="desktop-card",
        topic=Topic.HOST,
        when="a card drives a display",
        applies=lambda c: any(card.display_active for card in c.cards),
        then=_desktop,
        because="{cards} also drives a display: what it holds now is planned for, but a browser or a game started "
        "later takes memory that the engine counts on",
        source="ExTV/dual-gpus-vllm README (troubleshooting); syv-ai/HyperQwen docs/gotchas.md 31",
        evidence=Evidence.FIELD_REPORT,
        sets=(),
    ),
    Rule(
        id="power-limit",
        topic=Topic.HOST,
        when="RTX 3060, 3090, 3090 Ti, 4090 or 5090",
        applies=lambda c: bool(_advice(c)),
        then=_power,
        because="advice, nothing is set: {text}",
        source="noonghunna/club-3090 (power-cap sweeps); syv-ai/HyperQwen docs/reproductions",
        evidence=Evidence.MEASURED,
        sets=(),
    ),
)

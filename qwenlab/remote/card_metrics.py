#!/usr/bin/env python3
"""card_metrics.py: the cards' figures as a text file for the node exporter, anew every fifteen seconds.

Debian has no exporter for NVIDIA cards. When nvidia-smi does not answer, the file keeps its age, and an alert is about
that. Standard library only.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

FILE = Path("/var/lib/prometheus/node-exporter/qwen_cards.prom")
INTERVAL_S = 15
MIB = 1 << 20
LABELS = ("uuid", "name")
FIGURES = {
    # field of nvidia-smi --query-gpu -> metric, factor to its unit, meaning
    "temperature.gpu": ("qwen_card_temperature_celsius", 1, "Temperature of the card."),
    "power.draw": ("qwen_card_power_watts", 1, "Power that the card draws."),
    "power.limit": ("qwen_card_power_limit_watts", 1, "Power that the card may draw."),
    "memory.used": ("qwen_card_memory_used_bytes", MIB, "Memory in use."),
    "memory.total": ("qwen_card_memory_bytes", MIB, "Memory of the card."),
    "utilization.gpu": ("qwen_card_utilization_ratio", 0.01, "Share of time in which a kernel ran."),
}


def page(lines: Iterable[str], now: float) -> str:
    """The exposition text of nvidia-smi's CSV rows; a figure that a card does not have is left out."""
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    rows = [row for row in rows if len(row) == len(LABELS) + len(FIGURES)]
    text = []
    for place, (metric, factor, meaning) in enumerate(FIGURES.values(), len(LABELS)):
        text += [f"# HELP {metric} {meaning}", f"# TYPE {metric} gauge"]
        for row in rows:
            try:
                value = float(row[place]) * factor
            except ValueError:
                continue
            text.append(f'{metric}{{card="{row[0]}",name="{row[1]}"}} {value:.15g}')
    text += ["# HELP qwen_cards_read_seconds When the cards were read, seconds since 1970."]
    text += ["# TYPE qwen_cards_read_seconds gauge", f"qwen_cards_read_seconds {now:.0f}", ""]
    return "\n".join(text)


def read() -> list[str]:
    """nvidia-smi's rows; empty when it does not answer."""
    command = ["nvidia-smi", f"--query-gpu={','.join((*LABELS, *FIGURES))}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"nvidia-smi does not answer: {error}", flush=True)
        return []
    return done.stdout.splitlines()


def write(text: str, file: Path) -> None:
    """Whole or not at all: the node exporter may read at any moment."""
    fresh = file.with_name(f".{file.name}.new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    os.replace(fresh, file)


def main() -> None:
    """Until it is ended."""
    while True:
        if rows := read():
            write(page(rows, time.time()), FILE)
        time.sleep(INTERVAL_S)


if __name__ == "__main__":
    main()

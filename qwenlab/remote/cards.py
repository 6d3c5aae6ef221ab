#!/usr/bin/env python3
"""cards.py: name the device node of every NVIDIA card by its UUID, below /dev/qwen.

Units allow devices by a path below /dev (DeviceAllow= takes no other, and follows links), the kernel numbers cards anew
at every boot, and a plan names them by UUID. The driver's minor number is in /proc/driver/nvidia/gpus/BUS/information;
the UUID there may still be unknown when no client has opened the card, so nvidia-smi is asked for it, which also makes
the nodes. Standard library only.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

LINKS = Path("/dev/qwen")
GPUS = Path("/proc/driver/nvidia/gpus")
MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)


def nodes(rows: str, gpus: Path) -> dict[str, str]:
    """UUID to device node, from `nvidia-smi --query-gpu=uuid,pci.bus_id` and the driver's procfs."""
    found = {}
    for row in rows.splitlines():
        uuid, _, bus = (cell.strip() for cell in row.partition(","))
        domain, _, rest = bus.lower().partition(":")
        try:
            minor = MINOR.search((gpus / f"{domain[-4:]}:{rest}" / "information").read_text())
        except OSError:
            continue
        if uuid.startswith("GPU-") and minor:
            found[uuid] = f"/dev/nvidia{minor.group(1)}"
    return found


def link(found: dict[str, str], folder: Path) -> None:
    """Make `folder` hold exactly these links."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.name not in found:
            old.unlink()
    for uuid, node in found.items():
        fresh = folder / f".{uuid}.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(node)
        fresh.rename(folder / uuid)


def main() -> None:
    """Ask, then link. A host whose driver does not answer keeps no link, and the gate says why."""
    command = ["nvidia-smi", "--query-gpu=uuid,pci.bus_id", "--format=csv,noheader"]
    try:
        rows = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (FileNotFoundError, subprocess.TimeoutExpired):
        rows = ""
    link(nodes(rows, GPUS), LINKS)


if __name__ == "__main__":
    main()

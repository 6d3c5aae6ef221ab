"""What systemd knows of a unit."""

from __future__ import annotations

import subprocess


def journal(unit: str) -> str:
    """Everything that the unit's present or last start said; empty when it never started."""
    show = ["systemctl", "show", "-p", "InvocationID", "--value", unit]
    start = subprocess.run(show, capture_output=True, text=True, check=False).stdout.strip()
    # what it wrote last may still be on its way
    subprocess.run(["journalctl", "--sync"], check=False)
    command = ["journalctl", f"_SYSTEMD_INVOCATION_ID={start}", "-o", "cat", "--no-pager"]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout

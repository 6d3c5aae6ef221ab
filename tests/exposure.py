"""What systemd thinks of a unit's sandbox."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def exposure(unit: Path) -> float:
    """The exposure level of a unit file, which must be one that systemd calls OK."""
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=True,
    )
    level = re.search(r"Overall exposure level.*: ([\d.]+) OK", judged.stdout)
    assert level is not None, judged.stdout
    return float(level.group(1))

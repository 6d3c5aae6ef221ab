"""JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def document(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is none that can be read."""
    try:
        read = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}

"""The throw-away host that script/demo boots on this machine, as the file says that script/demo writes."""

import json
import os
from pathlib import Path

_state = Path(os.environ.get("QWENLAB_DEMO", "~/.cache/qwenlab/demo.json")).expanduser()
_hosts = json.loads(_state.read_text())["hosts"] if _state.exists() else []

demo = [(host["name"], host["data"]) for host in _hosts]

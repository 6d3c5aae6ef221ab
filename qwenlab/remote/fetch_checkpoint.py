#!/usr/bin/env python3
"""fetch_checkpoint.py JOB: fetch one checkpoint, whole or not at all (see qwenlab/remote/checkpoint/fetch.py).

Runs with the release's interpreter as the service user, in a transient unit of its own.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

from qwenlab.remote.checkpoint.fetch import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())

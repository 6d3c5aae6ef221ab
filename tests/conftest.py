"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# Continuous integration judges a change by the same examples every time; everybody else explores new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

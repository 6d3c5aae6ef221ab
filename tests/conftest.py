"""What all tests share."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# Continuous integration judges a change by the same examples every time; everybody else explores new ones.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

# A shell starts what it runs in the background with Ctrl-C ignored, and children inherit that: the tests of
# interrupted commands would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

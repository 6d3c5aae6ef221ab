"""Host base and checkpoints alone, with an interpreter that the lab lends: no engine is installed."""

from __future__ import annotations

from pyinfra.context import host as current

from tasks import checkpoints, host
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    host.become_root()
    host.install(desired=desired)
    checkpoints.install(desired=desired, python=current.data.get("lab_python"))

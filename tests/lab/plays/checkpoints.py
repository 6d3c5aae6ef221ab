"""Host base and checkpoints alone, with an interpreter that the lab lends: no engine is installed.

`lab_configure` adds the plan and engine files, kept as a generation that served well.
"""

from __future__ import annotations

from pyinfra.context import host as current

from qwenlab.operations import generation, service
from tasks import checkpoints, host
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    host.become_root()
    host.install(desired=desired)
    checkpoints.install(desired=desired, python=current.data.get("lab_python"))
    if current.data.get("lab_configure"):
        service.configure(name="Plan, engine files and units", settings=desired.settings)
        generation.remember(name="Last good generation")

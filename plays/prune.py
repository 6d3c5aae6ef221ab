"""Checkpoints that nobody uses, shown and, when confirmed, removed:  pyinfra inventory/lab.py plays/prune.py

`--dry` shows only. Used is what the plan, a generation that a rollback brings back, or a running engine names; nothing
else is ever touched.
"""

from tasks import checkpoints, host
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    host.become_root()
    checkpoints.prune(settings=desired.settings)

"""What would run on each host, and why; changes nothing:  pyinfra inventory/lab.py plays/plan.py"""

from tasks import host, plan
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    host.become_root()
    plan.show(desired=desired)

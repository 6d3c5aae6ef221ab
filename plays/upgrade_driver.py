"""Another driver, one host at a time; a host that fails ends it:

pyinfra inventory/lab.py plays/upgrade_driver.py --data qwen_driver_branch=595 --data qwen_allow_reboot=True
"""

from tasks import driver, host
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    host.become_root()
    driver.check(settings=desired.settings)
    driver.upgrade(settings=desired.settings)

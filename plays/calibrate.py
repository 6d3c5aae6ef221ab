"""What engines really take of their cards, and KV pools pinned by it:  pyinfra inventory/lab.py plays/calibrate.py -y

Every engine is restarted: without its pin to be measured, once more where its caches were cold, and with its new pin.
"""

from tasks import bundle, host, rollout, service
from tasks.settings import load_for_host

desired = load_for_host()

if desired is not None:
    host.become_root()
    desired = bundle.resolve(desired)

if desired is not None:
    rollout.calibrate(desired=desired)
    service.show_calibration(settings=desired.settings)

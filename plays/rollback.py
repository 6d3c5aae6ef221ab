"""Back to the release, plan and units that served before:  pyinfra inventory/lab.py plays/rollback.py -y"""

from tasks import host, service
from tasks.settings import load_for_host

if load_for_host() is not None:
    host.become_root()
    service.rollback()

"""Does every host run as asked? Exit code 1 when one does not:  pyinfra inventory/lab.py plays/status.py -y"""

from tasks import host, service
from tasks.settings import load_for_host

desired = load_for_host(serving=False)

if desired is not None:
    host.become_root()
    service.status(settings=desired.settings)
